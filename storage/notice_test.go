package storage_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// giveNotice writes a notice, like a sweep, that all packs of a store are about to be deleted.
func giveNotice(t *testing.T, s *storage.Store) {
	t.Helper()
	var lines []string
	for _, name := range objects(t, s, "ns/packs/") {
		lines = append(lines, strings.TrimPrefix(name, "ns/")+"\n")
	}
	if err := s.Backend().Replace(t.Context(), "ns/sweeps/other", []byte(strings.Join(lines, ""))); err != nil {
		t.Fatal(err)
	}
}

// sweepAll deletes all packs.
func sweepAll(t *testing.T, s *storage.Store) {
	t.Helper()
	for _, pack := range objects(t, s, "ns/packs/") {
		if err := s.Backend().Delete(t.Context(), pack); err != nil {
			t.Error(err)
		}
	}
}

// TestSweptAtCommit: a sweep deletes a writer's packs, or is about to, just when their manifest is created. The writer
// must fail and leave nothing.
func TestSweptAtCommit(t *testing.T) {
	for name, test := range map[string]struct {
		op        fault.Op // at which operation it happens, and on what
		at        string
		meanwhile func(*storage.Store)
		kind      error
	}{
		"condemned before": {
			fault.Create, "/claims/", func(s *storage.Store) { giveNotice(t, s) },
			storage.ErrUnavailable,
		},
		"swept before": {fault.Create, "/claims/", func(s *storage.Store) { sweepAll(t, s) }, storage.ErrNotFound},
		"condemned all the same": {
			fault.Create, "/manifest", func(s *storage.Store) { giveNotice(t, s) },
			storage.ErrUnavailable,
		},
		"swept all the same": {fault.Create, "/manifest", func(s *storage.Store) { sweepAll(t, s) }, storage.ErrNotFound},
	} {
		s := storagetest.NewDir(t)
		f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
			if op == test.op && strings.Contains(name, test.at) {
				test.meanwhile(s)
			}
			return fault.Fault{}
		})
		if err := write(t, f, key); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
		verifyAll(t, s, 0)
		if left := objects(t, s, "ns/packs/"); len(left) != 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
	}
}

// TestSweptAtReplicate: a replication finds packs that a sweep is about to delete. It waits for the sweep, and copies
// the packs again. That somebody has called the young notice void does not count.
func TestSweptAtReplicate(t *testing.T) {
	src, dst := storagetest.NewDir(t), storagetest.NewDir(t)
	m := storagetest.Write(t, src, key, nil, tinyImage())
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
	storagetest.Orphan(t, dst, key)
	giveNotice(t, dst)
	if err := dst.Backend().Replace(t.Context(), "ns/sweeps/other.void", nil); err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		ctx := context.WithoutCancel(t.Context())
		swept <- errors.Join(dst.Backend().Delete(ctx, "ns/packs/"+m.Packs[0].ID.String()),
			dst.Backend().Delete(ctx, "ns/sweeps/other"))
	}()
	err := storage.Replicate(t.Context(), dst, src, key, nil)
	if err := errors.Join(err, <-swept); err != nil {
		t.Fatal(err)
	}
	storagetest.WantImage(t, m, tinyImage(), dst)
}

// TestSweptKeyAtCommit: a writer takes over the data key of a parent that was removed, which a sweep is about to
// delete. The writer waits for the sweep, and puts the key in place again.
func TestSweptKeyAtCommit(t *testing.T) {
	keys := keyDir(t, "ns", hexKey(1))
	s := locked(t, storagetest.NewDir(t), keys)
	parent := storagetest.Write(t, s, key, nil, tinyImage())
	dataKey := strings.TrimPrefix(objects(t, s, "ns/keys/")[0], "ns/")
	if err := s.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	looks := 0
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		b, ctx := s.Backend(), context.WithoutCancel(t.Context())
		var err error
		switch {
		case op == fault.Create && strings.Contains(name, "/claims/"):
			err = b.Replace(ctx, "ns/sweeps/other", []byte(dataKey+"\n"))
		case op == fault.List && strings.HasSuffix(name, "/sweeps/"):
			if looks++; looks == 2 {
				err = errors.Join(b.Delete(ctx, "ns/"+dataKey), b.Delete(ctx, "ns/sweeps/other"))
			}
		}
		if err != nil {
			t.Error(err)
		}
		return fault.Fault{}
	})
	child := storagetest.Write(t, locked(t, f, keys), storage.Key{Namespace: "ns", Name: "two"}, parent, tinyImage())
	if looks < 2 {
		t.Errorf("the writer has looked for sweeps %d times", looks)
	}
	storagetest.WantImage(t, child, tinyImage(), locked(t, s, keys))
}

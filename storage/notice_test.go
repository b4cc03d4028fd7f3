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

// giveNotice says, as a sweep would, that all packs of a store are about to be deleted.
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

// TestSweptAtCommit: a writer whose packs a sweep takes, or is about to take, at the very moment when
// its manifest is created, fails and leaves nothing.
func TestSweptAtCommit(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*storage.Store)
		kind      error
	}{
		"condemned": {func(s *storage.Store) { giveNotice(t, s) }, storage.ErrUnavailable},
		"swept": {func(s *storage.Store) {
			for _, pack := range objects(t, s, "ns/packs/") {
				if err := s.Backend().Delete(t.Context(), pack); err != nil {
					t.Error(err)
				}
			}
		}, storage.ErrNotFound},
	} {
		s := storagetest.NewDir(t)
		f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
			if op == fault.Create && strings.HasSuffix(name, "/manifest") {
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

// TestSweptAtReplicate: a replication that finds packs which a sweep is about to take waits for it,
// and copies them again.
func TestSweptAtReplicate(t *testing.T) {
	src, dst := storagetest.NewDir(t), storagetest.NewDir(t)
	m := storagetest.Write(t, src, key, nil, tinyImage())
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
	if err := dst.Remove(t.Context(), key); err != nil { // the packs stay
		t.Fatal(err)
	}
	giveNotice(t, dst)
	swept := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		ctx := context.WithoutCancel(t.Context())
		swept <- errors.Join(dst.Backend().Delete(ctx, "ns/packs/"+m.Packs[0].ID.String()), dst.Backend().Delete(ctx, "ns/sweeps/other"))
	}()
	err := storage.Replicate(t.Context(), dst, src, key, nil)
	if err := errors.Join(err, <-swept); err != nil {
		t.Fatal(err)
	}
	storagetest.WantImage(t, m, tinyImage(), dst)
}

// TestVerifySubset: each pack is read by one of the parts.
func TestVerifySubset(t *testing.T) {
	s := storagetest.NewDir(t)
	image := storagetest.SmallImage(1)
	var m *storage.Manifest
	for _, name := range []string{"a", "b", "c", "d"} {
		image["pages.img"][2] = storagetest.Bytes(uint64(name[0]), 4096)
		m = storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: name}, m, image)
	}
	c := &counting{Backend: s.Backend()}
	far := storagetest.OpenStore(t, c)
	for part := range 3 {
		if err := far.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true, Part: part + 1, Parts: 3}); err != nil {
			t.Error(err)
		}
	}
	if n := c.reads.Load(); n != int64(len(m.Packs)) {
		t.Errorf("%d reads of %d packs", n, len(m.Packs))
	}
}

package snapshots

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/cache"
	"diapause.dev/storage/storagetest"
)

// await waits until a store has as many objects with a prefix as wanted.
func await(t *testing.T, s *storage.Store, prefix string, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n := 0
		err := s.Backend().List(ctx, prefix, func(storage.ObjectInfo) error {
			n++
			return nil
		})
		if err != nil {
			t.Fatalf("%d of %s, want %d: %v", n, prefix, want, err)
		}
		if n == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRemovedWhileLoading: if another node removes a snapshot that this node restores from, the restore reads it to its
// end. After that its packs are deleted.
func TestRemovedWhileLoading(t *testing.T) {
	a := newRig(t, nil)
	k, image := snapshot.Key{Namespace: "n", Name: "s"}, storagetest.SmallImage(1)
	for _, s := range []func() *storage.Store{
		func() *storage.Store { return a.stores.spool },
		func() *storage.Store { s, _ := a.stores.Get(t.Context(), ""); return s },
	} {
		at := s()
		storagetest.Write(t, at, k, nil, image)
		rs := a.readers
		r, err := rs.Open(t.Context(), ID{Key: k}, "")
		if err != nil {
			t.Fatal(err)
		}
		again, err := rs.Open(t.Context(), ID{Key: k}, "")
		if err != nil || again != r {
			t.Fatalf("another reader: %v", err)
		}
		await(t, at, "n/claims/", 1)
		if err := storagetest.OpenStore(t, at.Backend()).Remove(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			f, _ := r.Manifest.File(checkpointfiles.StateFileName)
			got := make([]byte, f.Size)
			if err := r.ReadAt(t.Context(), f.Name, 0, [][]byte{got}); err != nil ||
				!slices.Equal(got, slices.Concat(image[f.Name]...)) {
				t.Errorf("read: %v", err)
			}
			rs.Release(r)
		}
		a.life.Wait()
		await(t, at, "n/", 0)
	}
}

// TestHoldOutlivesTheAgent: sandboxes that are loading when the agent ends find their snapshot when the next agent
// starts.
func TestHoldOutlivesTheAgent(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
	if _, err := a.readers.Open(t.Context(), ID{Key: k}, ""); err != nil {
		t.Fatal(err)
	}
	await(t, a.stores.spool, "n/claims/", 1)
	a.life.End(errkind.ErrStopping)
	a.life.Wait()
	await(t, a.stores.spool, "n/claims/", 1)
}

// TestForgetDeleted: what another node has removed from the store is removed from this node's cache.
func TestForgetDeleted(t *testing.T) {
	a := newRig(t, nil)
	c, err := cache.Open(t.TempDir(), cache.Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	a.stores.cache = &blockCache{cache: c}
	plain, err := a.stores.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	far, err := storage.Open(t.Context(), plain.Backend(), storage.Options{Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	stays, goes := snapshot.Key{Namespace: "n", Name: "stays"}, snapshot.Key{Namespace: "n", Name: "goes"}
	m := storagetest.Write(t, far, stays, nil, storagetest.SmallImage(1))
	storagetest.WantImage(t, m, storagetest.SmallImage(1), far)
	want := c.Bytes()
	storagetest.WantImage(t, storagetest.Write(t, far, goes, nil, storagetest.SmallImage(2)), storagetest.SmallImage(2),
		far)
	if err := plain.Remove(t.Context(), goes); err != nil {
		t.Fatal(err)
	}
	if c.Bytes() <= want {
		t.Fatal("nothing of the removed snapshot is in the cache")
	}
	for range 2 { // the second call does nothing: it comes too soon
		if err := a.evictor.forgetDeleted(t.Context()); err != nil || c.Bytes() != want {
			t.Errorf("%d bytes in the cache, want %d: %v", c.Bytes(), want, err)
		}
	}
	a.stores.cache.tidied = time.Time{}
	a.stores.o.Cluster = &removals{store: "gs://"}
	if err := a.evictor.forgetDeleted(t.Context()); !errors.Is(err, errkind.ErrInvalid) || c.Bytes() != want {
		t.Errorf("with a store that cannot be listed: %v, %d bytes", err, c.Bytes())
	}
}

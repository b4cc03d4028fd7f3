package storage_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// clocks are the clocks of a machine: how far each has advanced since the test began.
type clocks struct{ wall, boot atomic.Int64 }

func (c *clocks) set(s *storage.Store) {
	began := time.Now()
	storage.SetClock(s, func() (time.Time, time.Duration) {
		return began.Add(time.Duration(c.wall.Load())), time.Duration(c.boot.Load())
	})
}

// suspended runs a sweep of one orphaned pack. The machine is suspended at the sweep's last listing, before it deletes
// the pack. meanwhile is what others do in that time.
func suspended(t *testing.T, s *storage.Store, c *clocks, meanwhile func()) error {
	t.Helper()
	lists := 0
	sweeper := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.List && strings.HasSuffix(name, "/snapshots/") {
			if lists++; lists == 3 { // objects beside manifests, manifests, and manifests again
				meanwhile()
			}
		}
		return fault.Fault{}
	})
	c.set(sweeper)
	time.Sleep(20 * time.Millisecond) // the backend's clock may be coarse
	_, err := sweeper.Sweep(t.Context(), storage.SweepOptions{Grace: 1})
	if lists < 3 {
		t.Fatal("the sweep has not come that far")
	}
	return err
}

// TestSweepSuspended: a sweep deletes nothing if any clock says that its notice is too old.
func TestSweepSuspended(t *testing.T) {
	const long, back = storage.NoticeLife + time.Minute, -time.Hour
	for name, jump := range map[string]struct{ wall, boot time.Duration }{
		"both":                          {long, long},
		"nobody set the wall clock yet": {0, long},
		"the wall clock alone":          {long, 0},
		"the wall clock was set back":   {back, long},
	} {
		s := storagetest.NewDir(t)
		storagetest.Write(t, s, key, nil, tinyImage())
		storagetest.Orphan(t, s, key)
		var c clocks
		err := suspended(t, s, &c, func() {
			c.wall.Store(int64(jump.wall))
			c.boot.Store(int64(jump.boot))
		})
		if !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if packs := objects(t, s, "ns/packs/"); len(packs) != 1 {
			t.Errorf("%s: packs: %q", name, packs)
		}
	}
}

// TestSweepFrozen: all clocks of the machine of a sweep have stood still. The sweep deletes nothing once somebody who
// waited long enough has removed its notice or, without the right to delete, has made it void.
func TestSweepFrozen(t *testing.T) {
	for _, mayDelete := range []bool{true, false} {
		spool, s := storagetest.NewDir(t), storagetest.NewDir(t)
		m := storagetest.Write(t, spool, key, nil, tinyImage())
		if err := storage.Replicate(t.Context(), s, spool, key, nil); err != nil {
			t.Fatal(err)
		}
		storagetest.Orphan(t, s, key)
		var here, there clocks
		err := suspended(t, s, &here, func() {
			other := s
			if !mayDelete {
				other = withoutDelete(t, s)
			}
			other = afterWait(t, other, &there, 3) // the third is for the manifest that it has made
			if err := storage.Replicate(t.Context(), other, spool, key, nil); err != nil {
				t.Error(err)
			}
		})
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the sweep has not noticed: %v", err)
		}
		storagetest.WantImage(t, m, tinyImage(), s)
		verifyAll(t, s, 1)
	}
}

// afterWait returns a store whose owner finds at its second look for sweeps that it has waited for as long as a notice
// counts. It fails after so many looks.
func afterWait(t *testing.T, s *storage.Store, c *clocks, most int) *storage.Store {
	t.Helper()
	looks := 0
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op != fault.List || !strings.HasSuffix(name, "/sweeps/") {
			return fault.Fault{}
		}
		if looks++; looks == 2 {
			c.boot.Store(int64(storage.NoticeLife + time.Second))
			grow(t, s, "ns/sweeps/", storage.NoticeLife+time.Second)
			grow(t, s, "ns/claims/", storage.NoticeLife)
		}
		if looks > most {
			return fault.Fault{Before: errors.New("a writer waits for a notice that is void")}
		}
		return fault.Fault{}
	})
	c.set(f)
	return f
}

// grow makes objects older by the backend's clock.
func grow(t *testing.T, s *storage.Store, prefix string, by time.Duration) {
	t.Helper()
	for _, name := range objects(t, s, prefix) {
		o, err := s.Backend().Stat(t.Context(), name)
		if err == nil {
			err = os.Chtimes(objectPath(s, name), time.Time{}, o.Modified.Add(-by))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

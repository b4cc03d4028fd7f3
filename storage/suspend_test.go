package storage_test

import (
	"errors"
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
// waited long enough has removed its notice.
func TestSweepFrozen(t *testing.T) {
	spool, s := storagetest.NewDir(t), storagetest.NewDir(t)
	m := storagetest.Write(t, spool, key, nil, tinyImage())
	if err := storage.Replicate(t.Context(), s, spool, key, nil); err != nil {
		t.Fatal(err)
	}
	storagetest.Orphan(t, s, key)
	var here, there clocks
	err := suspended(t, s, &here, func() {
		looks := 0
		other := faulty(t, s, func(op fault.Op, name string) fault.Fault {
			if op == fault.List && strings.HasSuffix(name, "/sweeps/") {
				if looks++; looks == 2 { // the first check has found the notice
					there.boot.Store(int64(storage.NoticeLife + time.Second))
				}
			}
			return fault.Fault{}
		})
		there.set(other)
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

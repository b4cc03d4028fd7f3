package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/errkind"
)

// spool is a node's spool whose store may be away.
type spool struct {
	*Replication
	waiting []Waiting
}

func newSpool(bytes int64, count int) *spool {
	s := new(spool)
	s.Replication = NewReplication(bytes, count, func() []Waiting { return s.waiting })
	return s
}

// checkpoint makes a snapshot of n bytes, unless it is refused.
func (s *spool) checkpoint(namespace string, n int64) error {
	release, err := s.Promise(namespace, n)
	if err == nil {
		s.waiting = append(s.waiting, Waiting{namespace, n})
		release()
	}
	return err
}

// TestStoreAwayForAnHour: every ten seconds a hostile namespace has a pod of 1 GiB checkpointed, and once a minute
// another one does, while the store is away. The spool stays within its bound, and the other namespace has its half.
// What is in the spool stays, and when the store is back, everything goes on.
func TestStoreAwayForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 64 << 30
		s := newSpool(bound, 1000)
		began, refused, took := time.Now(), map[string]int{}, map[string]int64{}
		for i := 0; time.Since(began) < time.Hour; i++ {
			for namespace, due := range map[string]bool{"hostile": true, "other": i%6 == 0} {
				err := error(nil)
				if due {
					err = s.checkpoint(namespace, 1<<30)
				}
				if err != nil {
					refused[namespace]++
				} else if due {
					took[namespace] += 1 << 30
				}
				if err != nil && (!errors.Is(err, errkind.ErrBudget) || !strings.Contains(err.Error(), "--backlog-size")) {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second) // of the bubble's clock
		}
		if took["hostile"] != bound/2 || refused["hostile"] != 360-32 || took["other"] != bound/2 ||
			refused["other"] != 60-32 {
			t.Errorf("taken %v, refused %v", took, refused)
		}
		if len(s.waiting) != 64 {
			t.Errorf("%d snapshots are in the spool", len(s.waiting))
		}
		s.waiting = nil // the store is back
		if err := s.checkpoint("hostile", 1<<30); err != nil {
			t.Error(err)
		}
	})
}

// TestHostileNamespaceFillsBacklog: many small snapshots count, too, and so do those that are being made. One namespace
// has half of the budget.
func TestHostileNamespaceFillsBacklog(t *testing.T) {
	s := newSpool(1<<30, 10)
	var ends []func()
	for range 5 {
		end, err := s.Promise("hostile", 1)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	_, err := s.Promise("hostile", 1)
	if !errors.Is(err, errkind.ErrBudget) || Refused(err) != "replication" ||
		!strings.Contains(err.Error(), "5 snapshots of namespace hostile") {
		t.Errorf("%v", err)
	}
	for i := range 5 {
		if err := s.checkpoint(fmt.Sprint("other-", i), 1); err != nil {
			t.Error(err)
		}
	}
	if err := s.checkpoint("another", 1); !errors.Is(err, errkind.ErrBudget) {
		t.Errorf("%v", err)
	}
	for _, end := range ends {
		end()
		end()
	}
	if err := s.checkpoint("hostile", 1); err != nil || len(s.coming) > 0 {
		t.Errorf("%v, %d are being made", err, len(s.coming))
	}
}

// TestOneLargeSnapshot: a snapshot that is larger than the budget is made while nothing waits. It is the last one.
func TestOneLargeSnapshot(t *testing.T) {
	s := newSpool(1<<30, 0)
	if err := s.checkpoint("a", 1<<40); err != nil {
		t.Error(err)
	}
	if err := s.checkpoint("b", 1); !errors.Is(err, errkind.ErrBudget) {
		t.Errorf("%v", err)
	}
	boundless := newSpool(0, 0)
	boundless.waiting = slices.Repeat([]Waiting{{"a", 1 << 40}}, 5000)
	if err := boundless.checkpoint("a", 1<<40); err != nil {
		t.Error(err)
	}
}

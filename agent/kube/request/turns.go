package request

import (
	"errors"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Clients take the PodSnapshot that the API server created last for the newest one. Among those created in the same
// second, they take the one with the least name. So the agents create the PodSnapshots of one pod in the order of its
// checkpoints. And they do not create a PodSnapshot whose name has no order in the same second as others.

// errEarly means that a PodSnapshot must wait, because one that comes before it does not exist yet.
var errEarly = errors.New("not its turn yet")

const (
	// turnTime is how long a PodSnapshot waits for that of an earlier checkpoint of its pod. It may be impossible to
	// create the earlier one.
	turnTime = 30 * time.Second
	// apart is the time between two PodSnapshots that must not be in the same second of the API server's clock. It does
	// not depend on this node's clock.
	apart = 1100 * time.Millisecond
)

// early reports whether a request's PodSnapshot must wait.
func (p *publisher) early(q journal.Request) bool {
	return slices.ContainsFunc(p.records.Reported.Before(q, turnTime), func(k snapshot.Key) bool {
		e, _ := p.records.Ledger.Get(k)
		return e.Published == ""
	}) || p.arrivals.tooNear(q.Key)
}

// seen records that a PodSnapshot exists.
func (p *publisher) seen(s *podsnapshotv1.PodSnapshot) {
	p.names.Saw(s.Name, s.CreationTimestamp.Time)
	p.arrivals.note(objects.KeyOf(s))
}

// arrivals are the PodSnapshots that were first seen within the last moment. Its methods may be called concurrently.
type arrivals struct {
	mu  sync.Mutex
	all map[snapshot.Key]time.Time
}

func newArrivals() *arrivals { return &arrivals{all: make(map[snapshot.Key]time.Time)} }

func (a *arrivals) note(k snapshot.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, at := range a.all {
		if time.Since(at) > apart {
			delete(a.all, k)
		}
	}
	if _, ok := a.all[k]; !ok {
		a.all[k] = time.Now()
	}
}

// tooNear reports whether a PodSnapshot with this key must not be created yet. That is so if another PodSnapshot of the
// namespace may have been created in this second, and its name is less. Clients would take the other one for the
// newer. They are right only if both names have an order: such names fall with time.
func (a *arrivals) tooNear(k snapshot.Key) bool {
	_, _, ordered := names.Parse(k.Name)
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, at := range a.all {
		if other.Namespace != k.Namespace || other.Name >= k.Name || time.Since(at) > apart {
			continue
		}
		if _, _, too := names.Parse(other.Name); !ordered || !too {
			return true
		}
	}
	return false
}

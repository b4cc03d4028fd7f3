package kube

import (
	"errors"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Clients take the PodSnapshot that the API server got last for the newest, and of those that it got
// in one second the one with the least name. So PodSnapshots of one pod are made in the order of its
// checkpoints, and one whose name says no order is not made in a second with others.

// errEarly: a PodSnapshot that must come before another one is not there yet.
var errEarly = errors.New("not its turn yet")

const (
	// orderTime is how long a PodSnapshot waits for that of an earlier checkpoint of its pod: that one
	// may be impossible to create.
	orderTime = 30 * time.Second
	// apart is how long after another one a PodSnapshot is made in another second of the API server's
	// clock, whatever this node's clock says.
	apart = 1100 * time.Millisecond
)

// early reports whether the PodSnapshot of a request has to wait.
func (c *Cluster) early(q journal.Request) bool {
	return slices.ContainsFunc(c.requests.before(q, orderTime), func(k snapshot.Key) bool {
		e, _ := c.ledger.get(k)
		return e.Published == ""
	}) || c.arrivals.close(q.Key)
}

// seen notes a PodSnapshot that is there.
func (c *Cluster) seen(s *podsnapshotv1.PodSnapshot) {
	c.names.Saw(s.Name, s.CreationTimestamp.Time)
	c.arrivals.note(keyOf(s))
}

// arrivals are the PodSnapshots that were seen first a moment ago. Its methods may be called
// concurrently.
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

// close reports whether another PodSnapshot of the namespace may have come in this very second whose
// name is less, though not because it is newer.
func (a *arrivals) close(k snapshot.Key) bool {
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

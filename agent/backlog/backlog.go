// Package backlog knows why snapshots are not in their stores yet, and what an operator can do about that.
package backlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Reasons why a snapshot is not in its store yet.
const (
	waitDenied      = "denied"      // the store refuses the credentials
	waitUnavailable = "unavailable" // the store cannot be reached
	waitFull        = "full"        // the store has no space
	waitDamaged     = "damaged"     // something stored is damaged
	waitOther       = "other"
)

// Reasons lists all reasons.
var Reasons = []string{waitDenied, waitUnavailable, waitFull, waitDamaged, waitOther}

// Reason returns why a store has failed.
func Reason(err error) string {
	for _, k := range []struct {
		is   error
		kind string
	}{
		{storage.ErrDenied, waitDenied},
		{storage.ErrUnavailable, waitUnavailable},
		{storage.ErrNoSpace, waitFull},
		{storage.ErrCorrupt, waitDamaged},
	} {
		if errors.Is(err, k.is) {
			return k.kind
		}
	}
	return waitOther
}

// advice says what an operator can do about a reason.
func advice(kind string) string {
	switch kind {
	case waitDenied:
		return "give the agent's identity access to the store; a key in a file of --bucket-credentials counts within the " +
			"hour, for another file restart the agent"
	case waitFull:
		return "make room in the store"
	case waitDamaged:
		return "run \"diapause verify --repair\""
	case waitUnavailable:
		return "check that the store runs and can be reached from this node"
	}
	return "look at the reason"
}

// Backlog holds the requests whose snapshot is on this node and whose replication has failed and is retried. Its
// methods may be called concurrently.
type Backlog struct {
	waiting func(byReason map[string]int)

	mu  sync.Mutex
	all map[string]lag // by request
}

// lag is the last failed attempt to replicate one snapshot.
type lag struct {
	key    snapshot.Key
	uid    string
	kind   string
	reason string
}

// New returns an empty backlog. On each change it calls waiting with the number of requests for each reason.
func New(waiting func(byReason map[string]int)) *Backlog {
	return &Backlog{waiting: waiting, all: make(map[string]lag)}
}

// Failed notes a failed attempt. It reports whether this is news: the first failure, or a kind other than the last.
func (b *Backlog) Failed(r *journal.Record, err error) (news bool) {
	now := lag{key: r.Key, uid: r.UID, kind: Reason(err)}
	now.reason = fmt.Sprintf("%v: %s", err, advice(now.kind))
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.all[r.ID].kind != now.kind
	b.all[r.ID] = now
	b.count()
	return news
}

// Ended notes that a request no longer waits.
func (b *Backlog) Ended(r *journal.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, r.ID)
	b.count()
}

// count updates the metrics. The caller holds b.mu.
func (b *Backlog) count() {
	n := make(map[string]int)
	for _, one := range b.all {
		n[one.kind]++
	}
	b.waiting(n)
}

// Reason returns why a request waits, or "" if it does not wait.
func (b *Backlog) Reason(request string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[request].reason
}

// Of returns why the snapshot with this UID waits, or "" if it does not wait.
func (b *Backlog) Of(uid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.uid == uid {
			return one.reason
		}
	}
	return ""
}

// Denied reports whether stores deny access to everything that waits. Then frequent retries do not help.
func (b *Backlog) Denied() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.kind != waitDenied {
			return false
		}
	}
	return len(b.all) > 0
}

// Check returns for "doctor" either that nothing waits, or, as an error, what waits and why.
func (b *Backlog) Check() (detail string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		return "no snapshot waits for its store", nil
	}
	var lines []string
	for _, kind := range Reasons {
		var of []lag
		for _, id := range slices.Sorted(maps.Keys(b.all)) {
			if b.all[id].kind == kind {
				of = append(of, b.all[id])
			}
		}
		if len(of) > 0 {
			lines = append(lines, fmt.Sprintf("%d on this node only (%s), the first %s: %s", len(of), kind, of[0].key,
				of[0].reason))
		}
	}
	return "", errors.New(strings.Join(lines, "; "))
}

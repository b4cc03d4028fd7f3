package snapshots

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

// Why a snapshot is not in the store yet.
const (
	waitDenied      = "denied"      // the store refuses the credentials
	waitUnavailable = "unavailable" // it cannot be reached
	waitFull        = "full"        // it has no space
	waitDamaged     = "damaged"     // something of it is damaged
	waitOther       = "other"
)

// Reasons are all of them.
var Reasons = []string{waitDenied, waitUnavailable, waitFull, waitDamaged, waitOther}

func waitKind(err error) string {
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

// advice says what to do about a kind.
func advice(kind string) string {
	switch kind {
	case waitDenied:
		return "give the agent's identity access to the store; if it has a key in a file, restart the agent once that is " +
			"replaced"
	case waitFull:
		return "make room in the store"
	case waitDamaged:
		return "run \"diapause verify --repair\""
	case waitUnavailable:
		return "look whether the store runs and can be reached from this node"
	}
	return "look at the reason"
}

// Backlog are the requests whose snapshot is on this node, and whose replication has failed and is tried again. Its
// methods may be called concurrently.
type Backlog struct {
	waiting func(byReason map[string]int)

	mu  sync.Mutex
	all map[string]lag // by request
}

// lag is the last attempt of one.
type lag struct {
	key    snapshot.Key
	uid    string
	kind   string
	reason string
}

// NewBacklog returns an empty backlog. It calls waiting, with how many wait for each reason, on each change.
func NewBacklog(waiting func(byReason map[string]int)) *Backlog {
	return &Backlog{waiting: waiting, all: make(map[string]lag)}
}

// failed notes a failed attempt, and reports whether that is news: the first one, or another kind than before.
func (b *Backlog) failed(r *journal.Record, err error) (news bool) {
	now := lag{key: r.Key, uid: r.UID, kind: waitKind(err)}
	now.reason = fmt.Sprintf("%v: %s", err, advice(now.kind))
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.all[r.ID].kind != now.kind
	b.all[r.ID] = now
	b.count()
	return news
}

// ended notes that a request waits no longer.
func (b *Backlog) ended(r *journal.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, r.ID)
	b.count()
}

// count tells the metrics.
func (b *Backlog) count() {
	n := make(map[string]int)
	for _, one := range b.all {
		n[one.kind]++
	}
	b.waiting(n)
}

// Reason returns why a request waits; "" if it does not.
func (b *Backlog) Reason(request string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[request].reason
}

// of returns why the snapshot of a UID waits; "" if it does not.
func (b *Backlog) of(uid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.uid == uid {
			return one.reason
		}
	}
	return ""
}

// denied reports whether all that waits does so because it is denied access: to ask often does not help.
func (b *Backlog) denied() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.kind != waitDenied {
			return false
		}
	}
	return len(b.all) > 0
}

// Check returns, for "doctor", that nothing waits, or what does and why.
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

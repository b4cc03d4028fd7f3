package admission

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
)

const (
	// answerTime is how long a wake that has to wait is kept before its shim is told so.
	answerTime = 500 * time.Millisecond
	// silence is how long a shim may not ask until its wake is forgotten: the pod has ended.
	silence = 5 * time.Second
	// lookEvery is how often memory is looked at while a wake waits.
	lookEvery = 200 * time.Millisecond
	// tellAfter is how long a wake waits before the cluster is told: most waits are over by then.
	tellAfter = time.Second
)

// Config is what a Queue works with.
type Config struct {
	Reserve   int64                 // bytes of memory that wakes leave free; 0: every wake is admitted at once
	Available func() (int64, error) // returns how many bytes of memory the node has free
	Restores  Restores
	Cluster   Cluster // nil: there is none
	Life      *lifetime.Life
	OnShort   func() // is called when a wake does not fit, again and again, and must not block; nil: for nobody
	Metrics   Metrics
	Logger    *slog.Logger
}

// Restores are the restores by which pods are woken. *restore.Wakes implements it.
type Restores interface {
	// Sleeper returns the pod that a request wakes, and how many bytes of memory its sandbox takes then.
	Sleeper(ctx context.Context, request string) (pod snapshot.PodRef, memory int64, err error)
	// Admit notes that the wake of a request may begin.
	Admit(request string)
	// Admitted reports whether Admit was called, and the request has not ended.
	Admitted(request string) bool
	// Unloaded returns how many bytes of memory the wakes that may begin, or have begun, will still take.
	Unloaded() int64
}

// Metrics count wakes.
type Metrics interface {
	// WakeAdmitted counts a wake that may begin, and how long it waited; 0: not at all.
	WakeAdmitted(waited time.Duration)
	// WakeGivenUp counts a wake that has waited until its pod ended.
	WakeGivenUp(waited time.Duration)
	// MadeRoom counts a pod that was put to sleep for a wake, or was not because of err.
	MadeRoom(err error)
}

// Cluster is what admission needs of the cluster that the node belongs to.
type Cluster interface {
	// Waits reports that the wake of a pod waits for memory, or no longer does. It must not block.
	Waits(pod snapshot.PodRef)
	// Idle returns the pods that may be put to sleep now, the longest idle first.
	Idle() []Candidate
	// PutToSleep puts one of them to sleep. It fails if the pod is used meanwhile.
	PutToSleep(ctx context.Context, pod snapshot.PodRef) error
}

// Candidate is a pod that may be put to sleep.
type Candidate struct {
	Pod    snapshot.PodRef
	Memory int64 // bytes that its sandbox has allocated
}

// Wake is a pod that is to be woken, as its shim says.
type Wake struct {
	Request string // the restore by which it is woken
	Sandbox string
	Room    int64         // bytes that are free in the cgroups which it shares with other pods
	Waited  time.Duration // since it was to be woken
}

// Queue holds the wakes of this node that wait for memory. Its methods may be called concurrently.
//
// Wakes are served in order of arrival. One that does not fit holds back those behind it, so that they do not take what
// becomes free. A namespace may do so for the time patience. After that its wakes are still looked at in their order,
// and the others no longer wait for them. Patience comes back with the time in which none of its wakes waits.
type Queue struct {
	Config

	mu       sync.Mutex
	waiting  []*waiter           // in order of arrival
	holding  map[string]*patient // by namespace; those that have their whole patience are not in it
	watching bool                // watch runs
	rest     rest
}

// waiter is a wake that waits. The Queue's lock guards its fields, except for those that never change.
type waiter struct {
	request  string
	pod      snapshot.PodRef
	need     int64     // bytes
	since    time.Time // when it was to be woken
	admitted chan struct{}

	sandbox string
	room    int64     // see Wake
	asked   time.Time // when its shim has asked last
	spare   int64     // bytes that there were for it when it was looked at
	behind  int       // how many wakes hold it back
	waited  bool      // it was not admitted at once
	told    bool      // the cluster was told
}

// New returns a queue in which no wake waits.
func New(c Config) *Queue {
	return &Queue{Config: c, holding: make(map[string]*patient), rest: rest{failed: make(map[string]time.Time)}}
}

// Ask returns whether a pod may be woken now. If not, it returns within answerTime what the wake waits for, and the
// shim asks again. If it is not known what a wake takes, it is admitted: its restore fails, and says why.
func (q *Queue) Ask(ctx context.Context, w Wake) (admitted bool, why string) {
	if q.Reserve == 0 || q.Restores.Admitted(w.Request) { // or else the answer was lost
		return true, ""
	}
	pod, need, err := q.Restores.Sleeper(ctx, w.Request)
	if err != nil {
		q.Logger.Warn("a pod is woken, whatever it takes", "request", w.Request, "error", err)
		return true, ""
	}
	x := q.enter(w, pod, need)
	if x == nil {
		return true, ""
	}
	select {
	case <-x.admitted:
		return true, ""
	case <-ctx.Done():
	case <-time.After(answerTime):
	}
	return q.answer(x)
}

// enter has a wake wait, unless it does already, and looks who may wake now. It returns nil if the wake was admitted
// while its shim asked again: it must not wait, and be counted, twice.
func (q *Queue) enter(w Wake, pod snapshot.PodRef, need int64) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Restores.Admitted(w.Request) {
		return nil
	}
	now := time.Now()
	i := slices.IndexFunc(q.waiting, func(x *waiter) bool { return x.request == w.Request })
	if i < 0 {
		x := &waiter{request: w.Request, pod: pod, need: need, since: now.Add(-max(w.Waited, 0))}
		x.admitted = make(chan struct{})
		i, _ = slices.BinarySearchFunc(q.waiting, x, func(a, b *waiter) int {
			if a.since.After(b.since) {
				return 1
			}
			return -1
		})
		q.waiting = slices.Insert(q.waiting, i, x)
	}
	x := q.waiting[i]
	x.sandbox, x.room, x.asked = w.Sandbox, w.Room, now
	q.look(now)
	if len(q.waiting) > 0 && !q.watching {
		q.watching = true
		q.Life.Go(q.watch)
	}
	return x
}

// answer returns whether a wake may begin, and otherwise what it waits for.
func (q *Queue) answer(x *waiter) (admitted bool, why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-x.admitted:
		return true, ""
	default:
		return false, x.reason()
	}
}

// watch looks who may wake, again and again, as long as a wake waits.
func (q *Queue) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for q.again() {
		select {
		case <-tick.C:
		case <-q.Life.Context().Done():
			return
		}
	}
}

// again looks once, and reports whether a wake still waits.
func (q *Queue) again() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look(time.Now())
	q.watching = len(q.waiting) > 0
	return q.watching
}

// look admits the wakes that fit, and has a pod put to sleep for one that does not. The caller holds q.mu.
func (q *Queue) look(now time.Time) {
	q.forget(now)
	free, err := q.Available()
	if err != nil {
		q.Logger.Error("it is not known what memory is free: pods are woken, whatever they take", "error", err)
	}
	unloaded := q.Restores.Unloaded()
	var short []*waiter
	for _, x := range slices.Clone(q.waiting) {
		x.spare = min(free, x.room) - q.Reserve - unloaded
		if err != nil || x.need <= x.spare {
			q.admit(x, now)
			unloaded += x.need
		} else if short = append(short, x); q.holdsBack(x, now) {
			break
		}
	}
	q.mark(short, now)
	q.makeRoom(short, now)
	if len(short) > 0 && q.OnShort != nil {
		q.OnShort()
	}
}

// holdsBack reports whether a wake that does not fit holds back those that came later. The caller holds q.mu.
func (q *Queue) holdsBack(x *waiter, now time.Time) bool {
	p := q.holding[x.pod.Namespace]
	if p == nil {
		p = &patient{since: now}
		q.holding[x.pod.Namespace] = p
	}
	p.again(now)
	return p.used(now) < patience
}

// mark notes who waits, and for whom, and tells the cluster. Short are the wakes that were looked at. The caller holds
// q.mu.
func (q *Queue) mark(short []*waiter, now time.Time) {
	for _, x := range q.waiting {
		x.waited = true
		if slices.Contains(short, x) {
			x.behind = 0
		} else {
			x.behind = len(short)
		}
		if !x.told && q.Cluster != nil && now.Sub(x.since) >= tellAfter {
			x.told = true
			q.Cluster.Waits(x.pod)
		}
	}
}

// admit lets a wake begin. The caller holds q.mu.
func (q *Queue) admit(x *waiter, now time.Time) {
	q.Restores.Admit(x.request)
	close(x.admitted)
	q.leave(x, now)
	waited := time.Duration(0)
	if x.waited {
		waited = now.Sub(x.since)
		q.Logger.Info("a pod is woken that waited for memory", "pod", x.pod.String(), "waited", waited)
	}
	q.Metrics.WakeAdmitted(waited)
}

// forget removes the wakes whose shims no longer ask, and namespaces that have their whole patience again. The caller
// holds q.mu.
func (q *Queue) forget(now time.Time) {
	for _, x := range slices.Clone(q.waiting) {
		if now.Sub(x.asked) >= silence {
			q.leave(x, now)
			q.Metrics.WakeGivenUp(now.Sub(x.since))
		}
	}
	maps.DeleteFunc(q.holding, func(_ string, p *patient) bool { return !p.left.IsZero() && p.used(now) == 0 })
}

// leave takes a wake from the queue. The caller holds q.mu.
func (q *Queue) leave(x *waiter, now time.Time) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool { return w == x })
	waits := slices.ContainsFunc(q.waiting, func(w *waiter) bool { return w.pod.Namespace == x.pod.Namespace })
	if p := q.holding[x.pod.Namespace]; p != nil && !waits {
		p.leave(now)
	}
	if x.told {
		q.Cluster.Waits(x.pod)
	}
}

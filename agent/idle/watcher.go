package idle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/traffic"
)

// Config is what a Watcher works with.
type Config struct {
	Meter Meter
	Idle  func(ctx context.Context, pod snapshot.PodRef) Verdict // called for a pod that is idle
	// LongAwake is called once for a pod that has not been put to sleep for a long time. It must not wait for anything.
	// It may be called concurrently.
	LongAwake func(pod snapshot.PodRef, u Use)
	Logger    *slog.Logger
}

// Verdict is what has become of a pod that was found idle. It is not asked about again before it has been used, or
// before Pause is over; a Pause of 0 never is.
type Verdict struct {
	Used   bool // it was used after all
	Owes   bool // that is because a client waits for an answer; set beside Used
	InUse  bool // a process that exec has started runs in it
	Asleep bool // it sleeps
	Pause  time.Duration
}

// Meter finds what the kernel counts for a pod.
type Meter interface {
	// Open returns the gauge of a pod that runs, which holds for as long as its sandbox lives. What is ignored does not
	// count.
	Open(ctx context.Context, pod snapshot.PodRef, ignored []traffic.Ignored) (Gauge, error)
}

// Gauge reads the counters of one pod.
type Gauge interface {
	// Read fails once the sandbox has ended.
	Read() (Usage, error)
	// Busy reports whether the pod is being loaded or saved.
	Busy() bool
	// Memory returns how many bytes the pod's sandbox has allocated. It costs more than Read, and may be called
	// concurrently.
	Memory() (int64, error)
	// Senders watches for some seconds who sends packets that count, and returns those who send most. It may be called
	// concurrently with the other methods.
	Senders(ctx context.Context) ([]traffic.Count, error)
	// Owes reports whether a client has waited for an answer of the pod, for no longer than within. It may be called
	// concurrently with the other methods.
	Owes(ctx context.Context, within time.Duration) (bool, error)
}

const (
	// every is how often the counters of each pod are read.
	every = time.Second
	// openAgain is the pause after a gauge could not be opened.
	openAgain = 10 * time.Second
	openNever = 24 * time.Hour // the same for a pod that cannot sleep
	// openTime bounds the search for a gauge.
	openTime = 5 * time.Second
	// openSoon is how long the other pods wait for the search. One takes some 40 ms if its shim is not slow. So at the
	// agent's start they go on one after the other: each runs a process of the runtime.
	openSoon = 100 * time.Millisecond
	// owesTime bounds the question whether a client waits for an answer.
	owesTime = 10 * time.Second
	// sendersTime bounds the watch for senders.
	sendersTime = 30 * time.Second
)

// Watcher watches pods of this node. Its methods may be called concurrently.
type Watcher struct {
	Config
	work  sync.WaitGroup
	early chan call

	mu   sync.Mutex
	pods map[string]*watched // by UID
}

// watched is one pod. What the Watcher's lock does not guard is used by Run, and while acting by act.
type watched struct {
	pod    snapshot.PodRef
	gauge  Gauge        // nil: not open
	search <-chan found // gets its gauge; nil: that is not searched for
	openAt time.Time
	judge  judge

	// The fields below are guarded by Watcher.mu.
	rule    Rule
	asleep  bool
	renewed bool      // what was seen of it no longer counts
	acting  bool      // Idle is being called
	told    bool      // Idle was called, and the pod was not used since
	again   time.Time // when Idle is called again all the same; zero: never
	spare   spare
}

// found is what came of a search for a gauge.
type found struct {
	gauge Gauge
	err   error
}

// spare is what is known of a pod that may be put to sleep early.
type spare struct {
	since time.Time // since when nobody has used it
	gauge Gauge     // nil: it may not
}

// NewWatcher returns a Watcher that watches no pod.
func NewWatcher(c Config) *Watcher {
	return &Watcher{Config: c, early: make(chan call), pods: make(map[string]*watched)}
}

// Watch has a pod watched by a rule from now on. One that sleeps is not looked at.
func (w *Watcher) Watch(pod snapshot.PodRef, r Rule, asleep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[pod.UID]
	if p == nil {
		p = &watched{pod: pod}
		w.pods[pod.UID] = p
	}
	p.renewed = p.renewed || p.asleep && !asleep
	p.rule, p.asleep = r, asleep
}

// Forget ends the watch of a pod.
func (w *Watcher) Forget(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// Run watches until ctx is done, and returns when no call of Idle is under way.
func (w *Watcher) Run(ctx context.Context) {
	defer w.work.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-w.early:
			w.hasten(ctx, c)
			continue
		case <-tick.C:
		}
		for _, p := range w.awake() {
			w.look(ctx, p)
		}
	}
}

// hasten serves a call of Early. Only Run may call it.
func (w *Watcher) hasten(ctx context.Context, c call) {
	w.mu.Lock()
	p := w.pods[c.uid]
	ok := p != nil && !p.asleep && !p.acting
	w.mu.Unlock()
	if ok {
		now := time.Now()
		s := w.see(ctx, p, now)
		s.idle = s.early
		ok = w.due(p, now, s)
	}
	if !ok {
		close(c.done)
		return
	}
	w.work.Go(func() { c.done <- w.act(ctx, p) })
}

// awake returns the pods to look at.
func (w *Watcher) awake() (pods []*watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if !p.asleep && !p.acting {
			pods = append(pods, p)
		}
	}
	return pods
}

// look looks at a pod, and calls Idle if it is idle.
func (w *Watcher) look(ctx context.Context, p *watched) {
	now := time.Now()
	s := w.see(ctx, p, now)
	if u, ok := p.judge.reasons.due(now, s.rule); ok {
		w.tell(ctx, p.pod, p.gauge, u)
	}
	if w.due(p, now, s) {
		w.work.Go(func() { w.act(ctx, p) })
	}
}

// tell calls LongAwake. If packets keep a pod awake, it finds out first who sends them, in the background.
func (w *Watcher) tell(ctx context.Context, pod snapshot.PodRef, g Gauge, u Use) {
	if g == nil || !slices.Contains(u.Why, Packets) {
		w.LongAwake(pod, u)
		return
	}
	w.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, sendersTime)
		defer cancel()
		var err error
		if u.Senders, err = g.Senders(ctx); err != nil {
			w.Logger.Debug("it is not known who sends packets to a pod", "pod", pod.String(), "error", err)
		}
		w.LongAwake(pod, u)
	})
}

// sight is what was seen of a pod. If there is nothing to see, only the rule is set.
type sight struct {
	rule        Rule
	idle, early bool // it may be put to sleep, by its rule or before
	used        bool // it was used since the last look
	spare       spare
}

// see reads the counters of a pod.
func (w *Watcher) see(ctx context.Context, p *watched, now time.Time) (s sight) {
	s.rule = w.begin(p)
	if p.gauge == nil && !w.open(ctx, p, now, s.rule) {
		return s
	}
	u, err := p.gauge.Read()
	if err != nil { // the sandbox has ended
		p.gauge, p.judge = nil, judge{}
		return s
	}
	before := p.judge.used
	s.idle = p.judge.look(now, u, p.gauge.Busy(), s.rule)
	s.used, s.early = p.judge.used != before, p.judge.early(now, s.rule)
	s.spare = spare{p.judge.used, p.gauge}
	return s
}

// begin returns the rule of a pod, and forgets what was seen before its last sleep.
func (w *Watcher) begin(p *watched) Rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.renewed {
		p.renewed, p.told, p.gauge, p.search, p.openAt, p.judge = false, false, nil, nil, time.Time{}, judge{}
	}
	return p.rule
}

// open opens the gauge of a pod, if it is time for that. If the pod's shim is slow, the search goes on in the
// background, and a later call takes what it has found.
func (w *Watcher) open(ctx context.Context, p *watched, now time.Time, r Rule) bool {
	wait := time.Millisecond // not 0: what was found is taken
	if p.search == nil {
		if now.Before(p.openAt) {
			return false
		}
		p.search, wait = w.searchFor(ctx, p.pod, r.Ignored), openSoon
	}
	var f found
	select {
	case f = <-p.search:
	case <-time.After(wait):
		return false
	}
	p.search = nil
	if f.err != nil {
		p.openAt = now.Add(openAgain)
		if errors.Is(f.err, ErrNever) {
			p.openAt = now.Add(openNever)
		}
		w.Logger.Debug("it is not known whether a pod is idle", "pod", p.pod.String(), "error", f.err)
		p.judge.reasons.blind(now, f.err)
		return false
	}
	p.gauge = f.gauge
	return true
}

// searchFor searches for the gauge of a pod in the background.
func (w *Watcher) searchFor(ctx context.Context, pod snapshot.PodRef, ignored []traffic.Ignored) <-chan found {
	result := make(chan found, 1)
	w.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, openTime)
		defer cancel()
		g, err := w.Meter.Open(ctx, pod, ignored)
		result <- found{g, err}
	})
	return result
}

// due reports whether Idle is to be called now.
func (w *Watcher) due(p *watched, now time.Time, s sight) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.used {
		p.told = false
	}
	wait := p.told && (p.again.IsZero() || now.Before(p.again))
	p.spare = spare{}
	if s.early && !wait {
		p.spare = s.spare
	}
	if !s.idle || wait || p.asleep || w.pods[p.pod.UID] != p {
		return false
	}
	p.acting = true
	return true
}

// verdict calls Idle, unless a client waits for an answer of the pod. Idle costs far more than to ask for that.
func (w *Watcher) verdict(ctx context.Context, p *watched) Verdict {
	w.mu.Lock()
	within := p.rule.AnswerWithin
	w.mu.Unlock()
	if within > 0 {
		ask, cancel := context.WithTimeout(ctx, owesTime)
		owes, err := p.gauge.Owes(ask, within)
		cancel()
		if err != nil { // whoever puts it to sleep looks again
			w.Logger.Debug("it is not known whether a client waits for a pod", "pod", p.pod.String(), "error", err)
		}
		if owes {
			return Verdict{Used: true, Owes: true}
		}
	}
	return w.Idle(ctx, p.pod)
}

// act calls Idle. Run leaves the pod alone meanwhile.
func (w *Watcher) act(ctx context.Context, p *watched) Verdict {
	v := w.verdict(ctx, p)
	p.judge.reasons.tried(v)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.acting, p.told, p.again, p.spare = false, !v.Used, time.Time{}, spare{}
	if v.Used {
		p.judge.used = time.Now()
	}
	if v.Pause > 0 {
		p.again = time.Now().Add(v.Pause)
	}
	return v
}

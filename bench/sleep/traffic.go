package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Traffic has trafficPods pods, each of which is put to sleep once nobody has used it for trafficIdle.
const (
	trafficPods = 10
	trafficMiB  = 64
	trafficIdle = 500 * time.Millisecond
)

// Requests arrive in bursts: the pause before a request is short, or long with a probability of longShare. Both are
// distributed exponentially.
const (
	shortPause = 30 * time.Millisecond
	longPause  = 4 * time.Second
	longShare  = 0.08
)

// keptLines is how many connections to each pod stay open. Half of the requests go over them.
const keptLines = 4

// traffic sends requests that arrive at random to pods that fall asleep soon.
func (m *meter) traffic(ctx context.Context) error {
	t := &trafficked{m: m, outcomes: make(map[string]int), falls: make(map[string]int)}
	for i := range trafficPods {
		s, err := m.start(ctx, fmt.Sprint("traffic-", i), trafficMiB, 2048, i)
		if err != nil {
			return err
		}
		t.pods = append(t.pods, s)
	}
	began := time.Now()
	if err := t.run(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	for _, s := range t.pods {
		if err := t.check(ctx, s); err != nil {
			say("traffic: pod %s: %v", s.Name, err)
			t.outcomes[wrong]++
		}
	}
	return t.report(ctx, took)
}

// trafficked is what traffic has done so far.
type trafficked struct {
	m    *meter
	pods []*subject

	mu           sync.Mutex
	outcomes     map[string]int // of requests
	falls        map[string]int // by how they went
	awake, woken times          // of requests to pods that were awake, and that slept
}

// run sends the requests to all pods, and puts the pods to sleep meanwhile.
func (t *trafficked) run(ctx context.Context) error {
	falling, stop := context.WithCancel(ctx)
	var drowsing, sending errgroup.Group
	for i, s := range t.pods {
		drowsing.Go(func() error { return t.drowse(falling, s) })
		share := (t.m.requests + i) / len(t.pods)
		sending.Go(func() error { return t.send(ctx, s, share, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	err := sending.Wait()
	stop()
	return errors.Join(err, drowsing.Wait())
}

// drowsePoll is how often a pod is looked at that is to fall asleep.
const drowsePoll = 20 * time.Millisecond

// drowse puts a pod to sleep whenever it is idle, until ctx ends. There is no cluster whose policy could do it, and a
// policy looks only once a second.
func (t *trafficked) drowse(ctx context.Context, s *subject) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(drowsePoll):
		}
		last, idle := s.use.idle(trafficIdle)
		if !idle {
			continue
		}
		// A fall that has begun is not cut short: it would count as one that failed.
		err := t.m.sleep(context.WithoutCancel(ctx), s.Pod, nil)
		t.fell(s, err)
		s.use.tried(last, err == nil)
	}
}

// fell counts a fall.
func (t *trafficked) fell(s *subject, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch status.Code(err) {
	case codes.OK:
		t.falls["fell asleep"]++
	case codes.Aborted:
		t.falls["packets came"]++
	case codes.FailedPrecondition:
		t.falls["not ready"]++
	default:
		t.falls["failed"]++
		say("traffic: %s stays awake: %v", s.Name, err)
	}
}

// send sends n requests to a pod, each at its time, whether those before are answered or not.
func (t *trafficked) send(ctx context.Context, s *subject, n int, r *rand.Rand) error {
	var all sync.WaitGroup
	defer all.Wait()
	kept := make([]keptLine, keptLines)
	defer func() {
		for i := range kept {
			kept[i].close()
		}
	}()
	defer all.Wait()
	for range n {
		mean := shortPause
		if r.Float64() < longShare {
			mean = longPause
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(r.ExpFloat64() * float64(mean))):
		}
		ask := s.ask
		if i := r.IntN(2 * keptLines); i < keptLines {
			ask = func(ctx context.Context) (time.Duration, error) { return kept[i].ask(ctx, s) }
		}
		all.Go(func() { t.request(ctx, s, ask) })
	}
	return nil
}

// request sends one request and counts what became of it.
func (t *trafficked) request(ctx context.Context, s *subject, ask func(context.Context) (time.Duration, error)) {
	asleep := s.use.begin()
	took, err := ask(ctx)
	s.use.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		t.outcomes[kindOf(err)]++
		say("traffic: a request to %s: %s: %v", s.Name, kindOf(err), err)
	case asleep:
		t.woken = append(t.woken, took)
	default:
		t.awake = append(t.awake, took)
	}
}

// keptLine is a connection that stays open. Requests take turns.
type keptLine struct {
	mu   sync.Mutex
	line *line // nil: it is to be opened
}

// ask sends a request, and returns the time until the first byte of the answer, its turn included.
func (k *keptLine) ask(ctx context.Context, s *subject) (took time.Duration, err error) {
	began := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.line == nil {
		if k.line, err = dial(ctx, s.address); err != nil {
			return 0, err
		}
	}
	took, err = s.askOn(ctx, k.line, began)
	if err != nil {
		k.line.Close()
		k.line = nil
	}
	return took, err
}

func (k *keptLine) close() {
	if k.line != nil {
		k.line.Close()
	}
}

// check checks the state of a pod at the end.
func (t *trafficked) check(ctx context.Context, s *subject) error {
	return errors.Join(s.ledger.whole(), verify(ctx, s.address))
}

// report adds the figures.
func (t *trafficked) report(ctx context.Context, took time.Duration) error {
	f := &t.m.figures
	f.add("traffic", count("pods", len(t.pods)), count("requests", t.m.requests),
		figure{Metric: "time", Value: math.Round(took.Seconds()), Unit: "s"})
	for _, kind := range []string{refused, reset, lost, wrong} {
		f.add("traffic", count(kind, t.outcomes[kind]))
	}
	f.add("traffic", count("fell_asleep", t.falls["fell asleep"]), count("met_packets", t.falls["packets came"]),
		count("met_wake", t.falls["not ready"]), count("failed_falls", t.falls["failed"]))
	if err := t.m.addWakes(ctx, "traffic"); err != nil {
		return err
	}
	f.add("traffic/awake", t.awake.figures()...)
	f.add("traffic/woken", t.woken.figures()...)
	return nil
}

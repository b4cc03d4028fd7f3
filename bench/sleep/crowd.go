package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

const (
	// crowdMiB is how much memory each pod of the crowd fills.
	crowdMiB = 256
	// crowdRandom is how many bytes of each of its pages are random. The rest repeats within the pod and differs from that
	// of the others, so that each snapshot is small and shares nothing: a few hundred of them fit on one disk.
	crowdRandom = 128
	// crowdAwake is how many pods of the crowd are awake at the same time.
	crowdAwake = 2
	// crowdFirst is how many pods of the crowd sleep when the agent's memory is looked at for the first time.
	crowdFirst = 20
	// crowdRest is how long the node is left alone before it is measured.
	crowdRest = 10 * time.Second
)

// crowd measures the scenarios dense and idle, which share their pods.
func (m *meter) crowd(ctx context.Context) error {
	empty, err := m.memory()
	if err != nil {
		return err
	}
	pods := make([]*subject, m.pods)
	first := min(crowdFirst, len(pods))
	some, err := m.lull(ctx, pods, 0, first)
	if err != nil {
		return err
	}
	full, err := m.lull(ctx, pods, first, len(pods))
	if err != nil {
		return err
	}
	if m.wants("dense") {
		m.addMemory("dense", len(pods), empty, full)
		if err := m.denseReady(ctx, pods, full); err != nil {
			return err
		}
		m.figures.add("dense/agent_rss", inMiB("0 asleep", empty.agent.rss),
			inMiB(fmt.Sprint(first, " asleep"), some.agent.rss), inMiB(fmt.Sprint(len(pods), " asleep"), full.agent.rss))
	}
	if m.wants("idle") {
		if err := m.idle(ctx); err != nil {
			return err
		}
	}
	if m.wants("dense") {
		return m.dense(ctx, pods)
	}
	return nil
}

// crowdReady is how many pods of the crowd are ready to wake for a while.
const crowdReady = 16

// denseReady makes some of the pods that sleep ready, measures what that takes, and undoes it.
func (m *meter) denseReady(ctx context.Context, pods []*subject, before held) error {
	runtime, err := cri.Dial(ctx, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	some := pods[:min(crowdReady, len(pods))]
	for _, p := range some {
		load := m.runsc == "runsc-fast"
		if err := runtime.OrderSleep(ctx, p.ID, sleep.Order{Verb: sleep.MakeReady, Load: load}); err != nil {
			return err
		}
	}
	time.Sleep(crowdRest)
	after, err := m.memory()
	if err != nil {
		return err
	}
	m.addMemory("dense/ready", len(some), before, after)
	for _, p := range some {
		if err := runtime.OrderSleep(ctx, p.ID, sleep.Order{Verb: sleep.DropReady}); err != nil {
			return err
		}
	}
	return nil
}

// lull starts pods of the crowd and puts them to sleep, a few at a time, and returns what then holds memory.
func (m *meter) lull(ctx context.Context, pods []*subject, from, to int) (held, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(crowdAwake)
	for i := from; i < to; i++ {
		g.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if pods[i], err = m.start(ctx, fmt.Sprint("crowd-", i), crowdMiB, crowdRandom, i); err != nil {
				return err
			}
			if err := m.putToSleep(ctx, pods[i]); err != nil {
				return err
			}
			say("dense: %s sleeps; load of the machine %.1f", pods[i].Name, machineLoad())
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return held{}, err
	}
	time.Sleep(crowdRest)
	return m.memory()
}

// lullTries is how often a pod is put to sleep for which packets come.
const lullTries = 5

// putToSleep puts a pod to sleep after a while.
func (m *meter) putToSleep(ctx context.Context, s *subject) (err error) {
	for range lullTries {
		time.Sleep(settleTime)
		if err = m.sleep(ctx, s.Pod, nil); status.Code(err) != codes.Aborted {
			return err
		}
	}
	return err
}

// dense wakes pods in random order, each by a request, and puts them to sleep again.
func (m *meter) dense(ctx context.Context, pods []*subject) error {
	order := rand.New(rand.NewPCG(2, 2)).Perm(len(pods))
	order = order[:min(len(order), m.toWake)]
	var w woken
	g := errgroup.Group{}
	g.SetLimit(crowdAwake)
	for _, i := range order {
		g.Go(func() error { return m.wakeOne(ctx, pods[i], &w) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.figures.add("dense", count("woken", len(order)), count("answered", len(w.times)), count(wrong, w.wrong),
		count("unanswered", w.unanswered))
	if err := m.addWakes(ctx, "dense"); err != nil {
		return err
	}
	m.figures.add("dense/woken", w.times.figures()...)
	return nil
}

// woken is what the pods did that dense has woken.
type woken struct {
	mu                sync.Mutex
	times             times
	wrong, unanswered int
}

// wakeOne wakes a pod, checks its state, and puts it to sleep again.
func (m *meter) wakeOne(ctx context.Context, s *subject, w *woken) error {
	took, err := s.ask(ctx)
	if err == nil {
		err = errors.Join(verify(ctx, s.address), s.ledger.whole())
	}
	w.enter(s, took, err)
	if err != nil {
		return nil // counted; the others are woken all the same
	}
	return m.putToSleep(ctx, s)
}

func (w *woken) enter(s *subject, took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.times = append(w.times, took)
	case errors.Is(err, errWrong):
		w.wrong++
	default:
		w.unanswered++
	}
	if err != nil {
		say("dense: %s: %v", s.Name, err)
	}
}

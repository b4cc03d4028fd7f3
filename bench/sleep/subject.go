package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// subject is a pod that counts requests and does nothing between them. Its methods may be called concurrently.
type subject struct {
	*bed.Pod
	address string
	ledger  ledger
	use     use
}

// start starts a pod that fills so many MiB, of whose pages so many bytes are random. Another seed gives other memory.
func (m *meter) start(ctx context.Context, name string, mib, random, seed int) (*subject, error) {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: name, Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{
			"/bin/workload", "rest", fmt.Sprint("--mib=", mib), fmt.Sprint("--random=", random),
			fmt.Sprint("--seed=", seed),
		},
	}}})
	if err != nil {
		return nil, err
	}
	s := &subject{Pod: pod, address: net.JoinHostPort(pod.IP, "8080")}
	err = bed.Until(ctx, func() error {
		l, err := dial(ctx, s.address)
		if err == nil {
			err = l.Close()
		}
		return err
	})
	if err == nil {
		_, err = s.ask(ctx)
	}
	return s, err
}

// ask sends a request that is counted, on a connection of its own. It checks the answer and returns the time until its
// first byte.
func (s *subject) ask(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	l, err := dial(ctx, s.address)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return s.askOn(ctx, l, began)
}

// askOn is ask on a connection. The time runs from began.
func (s *subject) askOn(ctx context.Context, l *line, began time.Time) (time.Duration, error) {
	floor := s.ledger.floor()
	var c answers.Count
	first, err := l.do(ctx, "POST", "/count", &c)
	if err != nil {
		return 0, err
	}
	return first.Sub(began), s.ledger.enter(floor, c)
}

// verify has a pod check all of its memory.
func verify(ctx context.Context, address string) error {
	l, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer l.Close()
	var a answers.Memory
	if _, err := l.do(ctx, "GET", "/verify", &a); err != nil {
		return err
	}
	if !a.OK {
		return fmt.Errorf("%w: %d of %d pages: %v", errWrong, a.Bad, a.Pages, a.Problems)
	}
	return nil
}

// sleep puts a pod to sleep. On the way it calls stage, unless that is nil, with the name of each stage of the work.
func (m *meter) sleep(ctx context.Context, pod *bed.Pod, stage func(string)) error {
	stream, err := m.agent.Sleep(ctx, &localv1.SleepRequest{Target: pod.ID})
	if err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("put pod %s to sleep: %w", pod.Name, err)
		}
		if p := e.GetProgress(); p != nil && stage != nil {
			stage(p.GetStage())
		}
		if e.GetAsleep() != nil {
			return nil
		}
	}
}

// use follows whether a pod is used.
type use struct {
	mu     sync.Mutex
	under  int       // requests under way
	last   time.Time // when the last one began or ended
	again  time.Time // when the pod may be put to sleep again
	asleep bool
}

// begin notes the beginning of a request, and reports whether the pod slept.
func (u *use) begin() (asleep bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	asleep = u.asleep
	u.under, u.last, u.asleep = u.under+1, time.Now(), false
	return asleep
}

func (u *use) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.under, u.last = u.under-1, time.Now()
}

// idle reports whether nobody has used the pod for that long, and it does not sleep yet. It returns when it was used.
func (u *use) idle(after time.Duration) (last time.Time, idle bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return u.last, !u.asleep && u.under == 0 && now.Sub(u.last) >= after && now.After(u.again)
}

// againPause is the pause after a pod could not be put to sleep.
const againPause = 500 * time.Millisecond

// tried notes that the pod was put to sleep, or could not be. If it was used since last, it has woken meanwhile.
func (u *use) tried(last time.Time, slept bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asleep = slept && u.last.Equal(last)
	u.again = time.Now().Add(againPause)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sizes are how much memory the pods of wake and fall fill, in MiB.
var sizes = []int{64, 256, 1024}

// wakes measures the scenarios wake and fall, which share their pods.
func (m *meter) wakes(ctx context.Context) error {
	for _, mib := range sizes {
		if err := m.size(ctx, mib); err != nil {
			return fmt.Errorf("%d MiB: %w", mib, err)
		}
	}
	if !m.wants("wake") {
		return nil
	}
	return m.exec(ctx)
}

// server is a pod of wake and fall.
type server struct {
	*bed.Pod
	address, boot string
	kept          *line
}

// serve starts a pod.
func (m *meter) serve(ctx context.Context, mib int) (s *server, err error) {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: fmt.Sprint("pod-", mib), Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", fmt.Sprintf("--mib=%d", mib)},
	}}})
	if err != nil {
		return nil, err
	}
	s = &server{Pod: pod, address: net.JoinHostPort(pod.IP, "8080")}
	err = bed.Until(ctx, func() (err error) { s.kept, err = dial(ctx, s.address); return err })
	if err == nil {
		_, err = s.askKept(ctx)
	}
	return s, err
}

// askKept asks on the connection that stays open.
func (s *server) askKept(ctx context.Context) (time.Duration, error) {
	return s.askOn(ctx, s.kept, time.Now())
}

// askFresh asks on a new connection.
func (s *server) askFresh(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	l, err := dial(ctx, s.address)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return s.askOn(ctx, l, began)
}

// askOn returns the time from began until the first byte of the answer, and checks whose life the answer is from.
func (s *server) askOn(ctx context.Context, l *line, began time.Time) (time.Duration, error) {
	var state answers.State
	first, err := l.do(ctx, "GET", "/state", &state)
	if err != nil {
		return 0, err
	}
	if s.boot == "" {
		s.boot = state.Boot
	}
	if state.Boot != s.boot {
		return 0, fmt.Errorf("%w: it comes from life %q, not %q", errWrong, state.Boot, s.boot)
	}
	return first.Sub(began), nil
}

// falls are the measurements of the falls of one pod.
type falls struct {
	asleep, end, back times
	met               times   // what requests waited that came while the pod was paused
	before, after     []int64 // bytes of the pod's memory
}

// size measures one pod of that size.
func (m *meter) size(ctx context.Context, mib int) error {
	s, err := m.serve(ctx, mib)
	if err != nil {
		return err
	}
	defer m.bed.RemovePod(context.WithoutCancel(ctx), s.ID)
	var fresh, kept, woken, awake times
	var f falls
	askExec := func(ctx context.Context) (time.Duration, error) { return m.command(ctx, s.Pod, usage) }
	for range m.trials {
		for _, x := range []struct {
			ask  func(context.Context) (time.Duration, error)
			into *times
		}{{s.askFresh, &fresh}, {s.askKept, &kept}, {askExec, &woken}} {
			if err := m.fall(ctx, s, &f); err != nil {
				return err
			}
			took, err := x.ask(ctx)
			if err != nil {
				return err
			}
			*x.into = append(*x.into, took)
			if _, err := s.askKept(ctx); err != nil { // the kept connection is there for the next sleep
				return err
			}
		}
		took, err := askExec(ctx)
		if err != nil {
			return err
		}
		awake = append(awake, took)
	}
	for tries := 0; len(f.met) < m.trials && tries < meetTries*m.trials && m.wants("fall"); tries++ {
		if err := m.meet(ctx, s, &f); err != nil {
			return err
		}
	}
	m.add(fmt.Sprintf("wake/http/%dMiB", mib), fresh)
	m.add(fmt.Sprintf("wake/keepalive/%dMiB", mib), kept)
	m.addExec(fmt.Sprintf("exec/%dMiB", mib), awake, woken)
	m.addFalls(mib, f)
	return verify(ctx, s.address)
}

// settleTime is how long a pod is left alone before it is put to sleep.
const settleTime = 300 * time.Millisecond

// fall puts a pod to sleep, and waits until its memory is given back.
func (m *meter) fall(ctx context.Context, s *server, f *falls) error {
	if err := m.settle(ctx, s.Pod); err != nil {
		return err
	}
	before, err := m.charged(s.Pod)
	if err != nil {
		return err
	}
	began, captured := time.Now(), time.Time{}
	err = m.sleep(ctx, s.Pod, func(stage string) {
		if stage == "capture" && captured.IsZero() {
			captured = time.Now()
		}
	})
	if err != nil {
		return err
	}
	asleep := time.Now()
	after, err := m.givenBack(ctx, s.Pod)
	if err != nil {
		return err
	}
	f.asleep, f.end = append(f.asleep, asleep.Sub(began)), append(f.end, asleep.Sub(captured))
	f.back = append(f.back, time.Since(began))
	f.before, f.after = append(f.before, before), append(f.after, after)
	return nil
}

// meetTries is how many falls there are at most for each measurement of meet.
const meetTries = 3

// meet puts a pod to sleep and asks it at a random instant while it is paused. If it runs on, it is noted how long the
// answer took. If the request came too late for that, and woke it, nothing is noted.
func (m *meter) meet(ctx context.Context, s *server, f *falls) error {
	if err := m.settle(ctx, s.Pod); err != nil {
		return err
	}
	ends := slices.Sorted(slices.Values(f.end))
	at := time.Duration(rand.Int64N(int64(ends[len(ends)/2])))
	captures, asked := make(chan struct{}), make(chan error, 1)
	var took time.Duration
	go func() {
		<-captures
		time.Sleep(at)
		var err error
		took, err = s.askKept(ctx)
		asked <- err
	}()
	var once sync.Once
	err := m.sleep(ctx, s.Pod, func(stage string) {
		if stage == "capture" {
			once.Do(func() { close(captures) })
		}
	})
	once.Do(func() { close(captures) })
	if failed := <-asked; failed != nil {
		return failed
	}
	if status.Code(err) == codes.Aborted {
		f.met = append(f.met, took)
		return nil
	}
	return err
}

// settle has a pod awake, and leaves it alone for a little.
func (m *meter) settle(ctx context.Context, pod *bed.Pod) error {
	if _, err := m.agent.Wake(ctx, &localv1.WakeRequest{Target: pod.ID}); err != nil { // returns once it is awake
		return err
	}
	time.Sleep(settleTime)
	return nil
}

const (
	// asleepMemory is how much may be charged to a pod whose memory has been given back, in bytes.
	asleepMemory = 15 << 20
	// backTime is how long that may take.
	backTime = 10 * time.Second
)

// givenBack waits until a pod that sleeps has given its memory back, and returns what it still holds.
func (m *meter) givenBack(ctx context.Context, pod *bed.Pod) (bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, backTime)
	defer cancel()
	for {
		held, err := m.charged(pod)
		if err != nil || held <= asleepMemory {
			return held, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("pod %s sleeps and holds %d MiB: %w", pod.Name, held>>20, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// exec measures a command in a pod that is awake, and in the same pod asleep.
func (m *meter) exec(ctx context.Context) error {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: "shell"})
	if err != nil {
		return err
	}
	defer m.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)
	var awake, woken times
	for range m.trials {
		took, err := m.command(ctx, pod, nothing)
		if err != nil {
			return err
		}
		awake = append(awake, took)
		if err := errors.Join(m.settle(ctx, pod), m.sleep(ctx, pod, nil)); err != nil {
			return err
		}
		if took, err = m.command(ctx, pod, nothing); err != nil {
			return err
		}
		woken = append(woken, took)
	}
	m.addExec("exec", awake, woken)
	return nil
}

// addExec adds how long commands took in a pod that was awake, and how much longer in the same pod asleep.
func (m *meter) addExec(name string, awake, woken times) {
	slices.Sort(awake)
	base := awake[len(awake)/2]
	for i := range woken {
		woken[i] -= base
	}
	m.add("awake/"+name, awake)
	m.add("wake/"+name, woken)
}

// program is a program that ends at once, and its status.
type program struct {
	path   string
	status int
}

// The programs that are run in pods: one of busybox, and the workload, which wants to be told what to do.
var (
	nothing = program{"/bin/true", 0}
	usage   = program{"/bin/workload", 2}
)

// command returns how long a program in a pod takes.
func (m *meter) command(ctx context.Context, pod *bed.Pod, p program) (time.Duration, error) {
	began := time.Now()
	_, code, err := m.bed.Exec(ctx, pod.Containers[0].ID, p.path)
	if err == nil && code != p.status {
		err = fmt.Errorf("exec of %s: status %d", p.path, code)
	}
	return time.Since(began), err
}

// add adds the percentiles of a scenario, if it is wanted.
func (m *meter) add(scenario string, t times) {
	if head := head(scenario); head != "awake" && !m.wants(head) {
		return
	}
	f := t.figures()
	m.figures.add(scenario, f...)
	say("%s: p50 %.0f ms, p90 %.0f ms", scenario, f[0].Value, f[1].Value)
}

// addFalls adds what the falls of pods of a size were like.
func (m *meter) addFalls(mib int, f falls) {
	name := func(what string) string { return fmt.Sprintf("fall/%s/%dMiB", what, mib) }
	m.add(name("asleep"), f.asleep)
	m.add(name("end"), f.end)
	m.add(name("pause"), f.met)
	m.add(name("given-back"), f.back)
	if m.wants("fall") {
		m.figures.add(name("memory"), inMiB("awake", float64(slices.Min(f.before))),
			inMiB("asleep_at_most", float64(slices.Max(f.after))))
	}
}

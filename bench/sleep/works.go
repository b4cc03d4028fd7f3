package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/idle"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

// A SleepPolicy needs a cluster. Here the agent's own package idle watches the pods, and sees and decides what it does
// in the agent. The benchmark does the rest of a policy's work: it has the agent put the pods to sleep.

// setting is the setting of a policy.
type setting struct {
	name string
	rule idle.Rule
}

var policies = []setting{
	{"idle-1s", idle.Rule{After: time.Second, CPU: 0.05, Packets: 6}},
	{"idle-1m", idle.Rule{After: time.Minute, MinAwake: time.Minute, CPU: 0.01, Packets: 6}},
}

// worker is a pod that works.
type worker struct {
	*bed.Pod
	kind   string
	policy setting
	work   work

	mu       sync.Mutex
	asleep   bool
	slept    int
	woken    int
	traffic  int       // falls that met packets
	unfit    int       // falls that were refused
	since    time.Time // when it fell asleep last
	sleeping time.Duration
}

// work is what a pod is used for.
type work interface {
	// do uses the pod until ctx ends. An error is a use that cannot go on.
	do(ctx context.Context, pod *bed.Pod) error
	// result checks what the pod has done when the work is over.
	result(ctx context.Context, b *bed.Bed, pod *bed.Pod) (result, error)
}

// result is what became of the uses of a pod.
type result struct {
	done, lost int
	times      times // of answers; none: nobody waits for one
}

// works has pods work under policies that would have them sleep.
func (m *meter) works(ctx context.Context) error {
	runtime, err := cri.Dial(ctx, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	var workers []*worker
	for _, p := range policies {
		for _, k := range kinds {
			w, err := m.startWorker(ctx, k, p)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			workers = append(workers, w)
		}
	}
	if err := m.work(ctx, workers, runtime); err != nil {
		return err
	}
	return m.addWorks(ctx, workers)
}

func (m *meter) startWorker(ctx context.Context, k kind, p setting) (*worker, error) {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: k.name + "-" + p.name, Containers: []bed.Container{k.container}})
	if err != nil {
		return nil, err
	}
	return &worker{Pod: pod, kind: k.name, policy: p, work: k.work(m.bed)}, nil
}

// work has the pods work for the time of the plan.
func (m *meter) work(ctx context.Context, workers []*worker, runtime *cri.Client) error {
	ctx, cancel := context.WithTimeout(ctx, m.workTime)
	defer cancel()
	o := overseer{m: m, workers: make(map[string]*worker)}
	o.watcher = idle.NewWatcher(idle.Config{
		Meter: idle.Kernel{Runtime: runtime, Busy: func(string) bool { return false }}, Idle: o.idle,
		LongAwake: func(snapshot.PodRef, idle.Use) {},
		Logger:    slog.New(slog.DiscardHandler),
	})
	var all sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		o.workers[w.UID] = w
		o.watcher.Watch(w.ref(), w.policy.rule, false)
		all.Go(func() { errs[i] = w.work.do(ctx, w.Pod) })
	}
	all.Go(func() { o.watcher.Run(ctx) })
	all.Go(func() { o.look(ctx) })
	all.Wait()
	for i, err := range errs {
		if err != nil {
			say("false: %s: %v", workers[i].Name, err)
		}
	}
	return nil
}

func (w *worker) ref() snapshot.PodRef {
	return snapshot.PodRef{Namespace: w.Namespace, Name: w.Name, UID: w.UID}
}

// overseer puts pods to sleep and notices when they wake.
type overseer struct {
	m       *meter
	watcher *idle.Watcher
	workers map[string]*worker // by UID
}

// refusedPause is the pause after a pod could not be put to sleep, as a policy makes it at first.
const refusedPause = time.Minute

// idle has a pod put to sleep that was found idle.
func (o *overseer) idle(ctx context.Context, ref snapshot.PodRef) idle.Verdict {
	w := o.workers[ref.UID]
	err := o.m.sleep(context.WithoutCancel(ctx), w.Pod, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.slept, w.asleep, w.since = w.slept+1, true, time.Now()
		o.watcher.Watch(ref, w.policy.rule, true)
		return idle.Verdict{Pause: w.policy.rule.After}
	case status.Code(err) == codes.Aborted:
		w.traffic++
		return idle.Verdict{Used: true}
	}
	w.unfit++
	say("false: %s stays awake: %v", w.Name, err)
	return idle.Verdict{Pause: refusedPause}
}

// lookEvery is how often pods that sleep are looked at.
const lookEvery = 100 * time.Millisecond

// look notices which pods have woken, until ctx ends.
func (o *overseer) look(ctx context.Context) {
	for ctx.Err() == nil {
		for _, w := range o.workers {
			if err := o.noticeWake(w); err != nil {
				say("false: %s: %v", w.Name, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// noticeWake notes it if a pod has woken: it has processes again.
func (o *overseer) noticeWake(w *worker) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asleep {
		return nil
	}
	n, err := o.m.bed.PodProcesses(w.Pod)
	if err != nil || n == 0 {
		return err
	}
	w.asleep, w.woken, w.sleeping = false, w.woken+1, w.sleeping+time.Since(w.since)
	o.watcher.Watch(w.ref(), w.policy.rule, false)
	return nil
}

// addWorks adds what each pod did.
func (m *meter) addWorks(ctx context.Context, workers []*worker) error {
	m.figures.add("false", count("pods", len(workers)),
		figure{Metric: "time", Value: m.workTime.Seconds(), Unit: "s"})
	if err := m.addWakes(ctx, "false"); err != nil {
		return err
	}
	var errs []error
	for _, w := range workers {
		if w.asleep {
			w.sleeping += time.Since(w.since)
		}
		r, err := w.work.result(ctx, m.bed, w.Pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.Name, err))
			continue
		}
		scenario := "false/" + w.policy.name + "/" + w.kind
		m.figures.add(scenario, count("slept", w.slept), count("woken", w.woken),
			figure{Metric: "asleep", Value: round(100 * w.sleeping.Seconds() / m.workTime.Seconds()), Unit: "%"},
			count("met_packets", w.traffic), count("was_refused", w.unfit), count("done", r.done), count(lost, r.lost))
		if len(r.times) > 0 {
			m.figures.add(scenario, r.times.figures()...)
		}
	}
	return errors.Join(errs...)
}

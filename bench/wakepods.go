package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

// stages are those of a pod's start by the calls of CRI, which follow each other.
type stages struct{ sandbox, create, start, exec time.Duration }

func (s stages) whole() time.Duration { return s.sandbox + s.create + s.start + s.exec }

func (s stages) String() string {
	return fmt.Sprintf("%.1f ms: sandbox %.1f, create %.1f, start %.1f, exec %.1f", milliseconds(s.whole()),
		milliseconds(s.sandbox), milliseconds(s.create), milliseconds(s.start), milliseconds(s.exec))
}

// stageNames says what each row of the scenario ready sums up.
var stageNames = []struct {
	name string
	of   func(stages) time.Duration
}{
	{"", stages.whole},
	{"RunPodSandbox", func(s stages) time.Duration { return s.sandbox }},
	{"CreateContainer", func(s stages) time.Duration { return s.create }},
	{"StartContainer", func(s stages) time.Duration { return s.start }},
	{"ExecSync", func(s stages) time.Duration { return s.exec }},
}

// readies measures the time from the request for a pod to its first exec, by the calls of a kubelet.
func (w *wakes) readies(ctx context.Context, modes []string) (rows []wakeRow, err error) {
	if err := w.agentFor(ctx, modeHot); err != nil {
		return nil, err
	}
	samples, err := takeTurns(ctx, scenarioReady, w.plan.n, modes, w.podReady)
	if err != nil {
		return nil, err
	}
	for _, mode := range modes {
		for _, stage := range stageNames {
			var took []wakeSample
			for _, s := range samples[mode] {
				took = append(took, wakeSample{took: stage.of(s)})
			}
			r := newWakeRow(scenarioReady, mode, w.mib, took)
			r.Stage = stage.name
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// podReady starts a pod, and removes it.
func (w *wakes) podReady(ctx context.Context, mode string) (s stages, err error) {
	w.count++
	spec := w.serving(fmt.Sprintf("ready-%d", w.count), w.mib, nil)
	if mode == modeHotPod {
		spec.Annotations = restoreFrom(w.snapshot)
	}
	begin := time.Now()
	stage := func() time.Duration { defer func() { begin = time.Now() }(); return time.Since(begin) }
	pod, err := w.bed.RunSandbox(ctx, spec)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)) }()
	s.sandbox = stage()
	c, err := w.bed.CreateContainer(ctx, pod, spec, spec.Containers[0])
	if err != nil {
		return s, err
	}
	s.create = stage()
	if err := w.bed.BeginContainer(ctx, pod, c); err != nil {
		return s, err
	}
	s.start = stage()
	err = retry(ctx, func() error {
		_, _, err := w.bed.Exec(ctx, c.ID, "/bin/true")
		return err
	})
	s.exec = stage()
	return s, err
}

// restoreFrom returns the annotations of a pod that is to be restored from a snapshot.
func restoreFrom(snapshot string) map[string]string {
	return map[string]string{
		podsnapshotv1.AnnotationRestoreFrom:      namespace + "/" + snapshot,
		podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail,
	}
}

// What the scenario branches restores: so many branches of a snapshot of so many MiB, of which the first request reads
// so many.
const (
	branchCount = 8
	branchMiB   = 256
	branchTouch = 20
)

// branches measures the time until all branches of one snapshot have answered.
func (n *node) branches(ctx context.Context, p wakePlan, modes []string, add func([]wakeRow) error) (err error) {
	pod, err := runWorkload(ctx, n, branchMiB)
	if err != nil {
		return err
	}
	const name = "branches"
	_, err = n.checkpoint(ctx, pod.ID, name)
	if err := errors.Join(err, n.bed.RemovePod(ctx, pod.ID)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.remove(context.WithoutCancel(ctx), name)) }()
	made := 0
	samples, err := takeTurns(ctx, scenarioBranches, p.n, modes, func(ctx context.Context,
		mode string,
	) (wakeSample, error) {
		made++
		return n.branch(ctx, made, branchesOf(mode, name))
	})
	if err != nil {
		return err
	}
	var rows []wakeRow
	for _, mode := range modes {
		r := newWakeRow(scenarioBranches, mode, branchMiB, samples[mode])
		r.Touched, r.Pieces = branchesOf(mode, name).touch, 1
		rows = append(rows, r)
	}
	return add(rows)
}

// branchSet is what one turn of the scenario branches starts at once.
type branchSet struct {
	count       int               // of pods
	mib, touch  int               // what each has, and what its first request reads of that, in MiB
	annotations map[string]string // nil: they start without a snapshot
}

// branchesOf returns what a mode starts. Pods without a snapshot say what the machine can start at all.
func branchesOf(mode, snapshot string) branchSet {
	set := branchSet{count: 1, mib: branchMiB, touch: branchTouch, annotations: restoreFrom(snapshot)}
	if mode == modeEight || mode == modeEightCold {
		set.count = branchCount
	}
	if mode == modeOneCold || mode == modeEightCold {
		set.mib, set.touch, set.annotations = 1, 1, nil
	}
	return set
}

// branch starts these pods at once, waits until all have answered and loaded, and removes them. It looks at what the
// agent grows by all the while.
func (n *node) branch(ctx context.Context, round int, set branchSet) (s wakeSample, err error) {
	before, err := n.bed.AgentMemory()
	if err != nil {
		return s, err
	}
	watching, stop := context.WithCancel(ctx)
	most := make(chan int64, 1)
	go func() { most <- n.watchAgent(watching) }()
	pods := make([]*bed.Pod, set.count)
	defer func() { err = errors.Join(err, n.removePods(context.WithoutCancel(ctx), pods)) }()
	begin := time.Now()
	group, grouped := errgroup.WithContext(ctx)
	for i := range pods {
		group.Go(func() (err error) {
			spec := n.serving(fmt.Sprintf("branch-%d-%d", round, i), set.mib, set.annotations)
			if pods[i], err = n.bed.RunPod(grouped, spec); err != nil {
				return err
			}
			path := fmt.Sprintf("/touch?mib=%d", set.touch)
			return retry(grouped, func() error { return ask(grouped, pods[i], path, nil) })
		})
	}
	err = group.Wait()
	s.took = time.Since(begin)
	if err == nil {
		err = bed.Until(ctx, isLoaded)
	}
	stop()
	s.agent = inMiB(<-most - before.Held())
	return s, err
}

// watchAgent returns the most that was charged to the agent until ctx ended.
func (n *node) watchAgent(ctx context.Context) (most int64) {
	for {
		if now, err := n.bed.AgentMemory(); err == nil {
			most = max(most, now.Held())
		}
		if sleep(ctx, watchPause) != nil {
			return most
		}
	}
}

// watchPause is between two looks at the agent's memory.
const watchPause = 20 * time.Millisecond

// removePods removes those pods that there are.
func (n *node) removePods(ctx context.Context, pods []*bed.Pod) error {
	var errs []error
	for _, p := range pods {
		if p != nil {
			errs = append(errs, n.bed.RemovePod(ctx, p.ID))
		}
	}
	return errors.Join(errs...)
}

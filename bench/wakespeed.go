package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// fullShare is the share of the usual rate that is full speed.
const fullShare = 0.9

// fullSpeeds measures the time from the start of a sandbox's first process to the beginning of the first pass over all
// its memory that runs at full speed.
func (w *wakes) fullSpeeds(ctx context.Context, modes []string) (rows []wakeRow, err error) {
	samples, err := takeTurns(ctx, scenarioSpeed, w.plan.n, modes, w.fullSpeed)
	if err != nil {
		return nil, err
	}
	for _, mode := range modes {
		r := newWakeRow(scenarioSpeed, mode, w.mib, samples[mode])
		r.UsualMS = milliseconds(w.usual)
		rows = append(rows, r)
	}
	return rows, nil
}

func (w *wakes) fullSpeed(ctx context.Context, mode string) (s wakeSample, err error) {
	if err := w.ready(ctx, mode); err != nil {
		return s, err
	}
	k, err := w.wake(ctx, mode)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, k.remove(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	if err := retry(ctx, func() error { return turnLoop(ctx, k.link.ip.String(), true) }); err != nil {
		return s, err
	}
	enough := time.Duration(float64(w.usual) / fullShare)
	err = bed.Until(ctx, func() error {
		var loop answers.Loop
		if err := k.ask(ctx, "/loop", &loop); err != nil {
			return err
		}
		for _, p := range loop.Passes {
			if p.Took() <= enough {
				s.took = p.Start().Sub(k.begin)
				return nil
			}
		}
		return fmt.Errorf("none of %d passes took %.1f ms or less", len(loop.Passes), milliseconds(enough))
	})
	return s, err
}

// neighbourMiB is the memory of a neighbour, which a pass reads within some milliseconds.
const neighbourMiB = 64

// neighbourTime is how long a neighbour is watched before and after.
const neighbourTime = 2 * time.Second

// neighbours measures the rate of another pod's loop over its memory while a sandbox is restored and loads.
func (w *wakes) neighbours(ctx context.Context, modes []string) (rows []wakeRow, err error) {
	pod, err := w.bed.RunPod(ctx, w.serving("neighbour", neighbourMiB, nil))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)) }()
	if err := retry(ctx, func() error { return turnLoop(ctx, pod.IP, true) }); err != nil {
		return nil, err
	}
	samples, err := takeTurns(ctx, scenarioNeighbour, w.plan.n, modes, func(ctx context.Context,
		mode string,
	) (wakeSample, error) {
		return w.neighbour(ctx, mode, pod)
	})
	if err != nil {
		return nil, err
	}
	for _, mode := range modes {
		rows = append(rows, newWakeRow(scenarioNeighbour, mode, w.mib, samples[mode]))
	}
	return rows, nil
}

// neighbour restores once beside a pod. took is how long the restore went on. The pod is watched for neighbourTime
// before it, and for as long after it, while the restored pod runs.
func (w *wakes) neighbour(ctx context.Context, mode string, pod *bed.Pod) (s wakeSample, err error) {
	if err := w.ready(ctx, mode); err != nil {
		return s, err
	}
	if err := ask(ctx, pod, "/loop?reset=1", nil); err != nil {
		return s, err
	}
	watched := time.Now()
	if err := sleep(ctx, neighbourTime); err != nil {
		return s, err
	}
	k, err := w.wake(ctx, mode)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, k.remove(context.WithoutCancel(ctx))) }()
	if err := w.awaitLoaded(ctx, k, mode); err != nil {
		return s, err
	}
	end := time.Now()
	s.took = end.Sub(k.begin)
	if err := sleep(ctx, neighbourTime); err != nil {
		return s, err
	}
	watchedAfter := time.Now()
	var loop answers.Loop
	if err := ask(ctx, pod, "/loop", &loop); err != nil {
		return s, err
	}
	usual := passRate(loop.Passes, watched, k.begin)
	if usual == 0 {
		return s, errors.New("the neighbour did nothing")
	}
	s.share = passRate(loop.Passes, k.begin, end) / usual
	s.after = passRate(loop.Passes, end, watchedAfter) / usual
	return s, nil
}

// awaitLoaded waits until a sandbox has all its memory or, if there was no snapshot, until its server answers.
func (w *wakes) awaitLoaded(ctx context.Context, k *woken, mode string) error {
	switch mode {
	case modeEmpty:
		return k.ask(ctx, "/state", nil)
	case modeStockNone:
		return k.run(ctx, "wait", "--restore", k.app) // the other id is the beginning of this one
	}
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	return bed.Until(ctx, isLoaded)
}

// passRate returns how many passes there were in a second between two instants.
func passRate(passes []answers.Pass, from, to time.Time) float64 {
	var count float64
	for _, p := range passes {
		begin, end := p.Start(), p.End()
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if d := end.Sub(begin); d > 0 && p.Took() > 0 {
			count += d.Seconds() / p.Took().Seconds()
		}
	}
	return count / to.Sub(from).Seconds()
}

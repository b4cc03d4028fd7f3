package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/storage/gcs"
)

// firstAnswers measures the time from the start of a sandbox's first process to the first answer of the server in it,
// for each size of what the request reads.
func (w *wakes) firstAnswers(ctx context.Context, modes []string) (rows []wakeRow, err error) {
	for _, touched := range w.plan.touch {
		name := fmt.Sprintf("%s of %d MiB", scenarioAnswer, touched)
		samples, err := takeTurns(ctx, name, w.plan.n, modes, func(ctx context.Context, mode string) (wakeSample, error) {
			return w.firstAnswer(ctx, mode, touched)
		})
		if err != nil {
			return nil, err
		}
		for _, mode := range modes {
			r := newWakeRow(scenarioAnswer, mode, w.mib, samples[mode])
			r.Touched, r.Pieces = touched, w.plan.pieces
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (w *wakes) firstAnswer(ctx context.Context, mode string, touched int) (s wakeSample, err error) {
	if err := w.ready(ctx, mode); err != nil {
		return s, err
	}
	if mode == modeWireBytes {
		return w.bytesAlone(ctx, touched)
	}
	k, err := w.wake(ctx, mode)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, k.remove(context.WithoutCancel(ctx))) }()
	if mode == modeEmpty {
		touched = emptyMiB
	}
	if err := k.ask(ctx, fmt.Sprintf("/touch?mib=%d&pieces=%d", touched, w.plan.pieces), nil); err != nil {
		return s, err
	}
	s.took = time.Since(k.begin)
	now, err := w.fetched(mode)
	s.bytes = now - k.before
	if err != nil || mode == modeEmpty {
		return s, err
	}
	if err := w.check(mode, func(command ...string) error { return k.exec(ctx, command...) }); err != nil {
		return s, err
	}
	if mode == modeWireFirst {
		return s, w.awaitWorkingSet(ctx)
	}
	return s, nil
}

// bytesAlone reads as many bytes from the store behind the wire as a request touches.
func (w *wakes) bytesAlone(ctx context.Context, mib int) (s wakeSample, err error) {
	size := int64(mib) << 20
	name := fmt.Sprintf("touched/%d", mib)
	if err := w.far.Replace(ctx, name, make([]byte, size)); err != nil {
		return s, err
	}
	near, err := gcs.Open(ctx, bucket, "")
	if err != nil {
		return s, err
	}
	before, begin := w.wire.passed.Load(), time.Now()
	_, err = near.ReadAll(ctx, name, size)
	s.took, s.bytes = time.Since(begin), w.wire.passed.Load()-before
	return s, errors.Join(err, near.Close(), w.far.Delete(ctx, name))
}

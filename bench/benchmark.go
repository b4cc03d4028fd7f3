package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// benchmark is a set of modes that are measured side by side.
type benchmark struct {
	name  string
	modes []string
	// base is the mode that the others are compared with.
	base string
	// prepare makes a subject with a workload of so many MiB.
	prepare func(ctx context.Context, n *node, mib int) (subject, error)
	// memory is the file for whose memory it is.
	memory string
}

// subject is what is measured.
type subject interface {
	// measure takes one measurement and leaves nothing behind that would show in the next.
	measure(ctx context.Context, mode string) (time.Duration, error)
	close(ctx context.Context) error
}

var benchmarks = map[string]*benchmark{
	"loading": {
		name: "loading", base: modeLoaded, prepare: prepareLoading,
		modes: []string{modeLoaded, modeLoadingHot, modeLoadingSlow},
	},
	"pause": {
		name: "pause", base: modeFloor, prepare: preparePause, memory: "pause-memory",
		modes: []string{modeDiapause, modeFloor, modeStockNone, modeStockFlate},
	},
	"restore": {
		name: "restore", base: modeStockNone, prepare: prepareRestore, memory: "memory",
		modes: []string{modeHot, modeCold, modeStockNone, modeStockFlate, modeColdStart, modeHotPod, modeColdPod},
	},
}

const (
	// measureTime bounds one measurement with all that it leaves to be cleaned up. A pod of 16 GiB takes minutes.
	measureTime = 15 * time.Minute
	// settleTime is how long the machine is left alone before each measurement.
	settleTime = 300 * time.Millisecond
)

// run measures on a node of its own, prints the table and writes the file.
func run(ctx context.Context, b *benchmark, p plan) (err error) {
	n, err := startNode(ctx, p.flags()...)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n--- log of the agent:\n%s", err, n.agentLog())
		}
		err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
	}()
	n.dirty = p.dirty
	var rows []row
	for _, n.cpuLimit = range p.cpu {
		for _, mib := range p.mem {
			samples, err := b.size(ctx, n, p, mib)
			if err != nil {
				return fmt.Errorf("%s of %d MiB: %w", b.name, mib, err)
			}
			for _, mode := range p.modes {
				rows = append(rows, newRow(mode, mib, n.cpuLimit, samples[mode]))
			}
		}
	}
	if err := b.print(os.Stdout, rows); err != nil {
		return err
	}
	err = write(n.bed.Bin.Root, b.name, rows)
	if len(n.memory) > 0 {
		err = errors.Join(err, write(n.bed.Bin.Root, b.memory, n.memory))
	}
	return err
}

// size measures all modes with one size of memory.
func (b *benchmark) size(ctx context.Context, n *node, p plan,
	mib int,
) (samples map[string][]time.Duration, err error) {
	say("%s: %d MiB: preparing", b.name, mib)
	s, err := b.prepare(ctx, n, mib)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	return takeTurns(ctx, fmt.Sprintf("%s: %d MiB", b.name, mib), p.n, p.modes, s.measure)
}

// takeTurns measures all modes n times, in turns. The first round is not counted: what happens for the first time takes
// longer.
func takeTurns[T any](ctx context.Context, name string, n int, modes []string,
	measure func(ctx context.Context, mode string) (T, error),
) (map[string][]T, error) {
	samples := make(map[string][]T)
	for i := range n + 1 {
		for _, mode := range modes {
			x, err := measureOne(ctx, mode, measure)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", mode, i, err)
			}
			if i == 0 {
				say("%s: warm-up: %s %v", name, mode, x)
				continue
			}
			samples[mode] = append(samples[mode], x)
			say("%s: %d/%d: %s %v", name, i, n, mode, x)
		}
	}
	return samples, nil
}

func measureOne[T any](ctx context.Context, mode string,
	measure func(ctx context.Context, mode string) (T, error),
) (x T, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	if err := sleep(ctx, settleTime); err != nil {
		return x, err
	}
	return measure(ctx, mode)
}

// say prints a line of progress.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// sleep waits for d, or returns the error of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

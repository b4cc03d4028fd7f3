package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/gcs"
	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// The wire of modeWireFirst and modeWireAgain.
const (
	wireRate    = 100_000_000 // bytes per second
	wireLatency = 20 * time.Millisecond
)

// emulator is the environment variable that tells clients where a store of Google's kind is.
const emulator = "STORAGE_EMULATOR_HOST"

// workingSetObject is the last part of the name under which a store has the working set of a snapshot.
const workingSetObject = "/workingset"

// wakes measures what a restored server does. Its snapshot is on the node, in the store on the disk, and in a store
// behind a wire.
type wakes struct {
	*restores
	plan  wakePlan
	gcs   *bed.GCS
	far   storage.Backend // of that store, not behind the wire
	wire  *wire
	away  string // directory of states of agents that know nothing of the snapshot
	known string // flags of the agent that runs
	count int    // of links, and of states in away

	usual time.Duration // of a pass over all memory, in the origin
}

func prepareWakes(ctx context.Context, n *node, p wakePlan, mib int) (_ *wakes, err error) {
	r, pod, err := startRestores(ctx, n, mib)
	if err != nil {
		return nil, err
	}
	w := &wakes{restores: r, plan: p, away: filepath.Join(r.dir, "away")}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
		}
	}()
	if w.usual, err = usualPass(ctx, pod); err != nil {
		return nil, err
	}
	say("%s: %d MiB: a pass over all memory usually takes %.1f ms", wakeName, mib, milliseconds(w.usual))
	if err = w.save(ctx, pod); err == nil {
		w.idle.app.Process.Args = []string{"/bin/workload", "serve", "--mib", strconv.Itoa(emptyMiB)}
		err = w.saveFar(ctx, pod)
	}
	return w, errors.Join(err, n.bed.RemovePod(ctx, pod.ID))
}

// emptyMiB is the memory of a server without a snapshot.
const emptyMiB = 1

// usualPasses is how many passes are enough to know what one takes.
const usualPasses = 20

// usualPass has a pod loop over its memory for a while, and returns the median of what a pass takes.
func usualPass(ctx context.Context, pod *bed.Pod) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	if err := turnLoop(ctx, pod.IP, true); err != nil {
		return 0, err
	}
	var took []time.Duration
	for len(took) < usualPasses {
		if err := sleep(ctx, gapTime); err != nil {
			return 0, err
		}
		var loop answers.Loop
		if err := ask(ctx, pod, "/loop", &loop); err != nil {
			return 0, err
		}
		took = took[:0]
		for _, p := range loop.Passes {
			took = append(took, p.Took())
		}
	}
	slices.Sort(took)
	return took[len(took)/2], errors.Join(turnLoop(ctx, pod.IP, false), ask(ctx, pod, "/loop?reset=1", nil))
}

// saveFar saves the pod in the store behind the wire, whose agent has nothing else.
func (w *wakes) saveFar(ctx context.Context, pod *bed.Pod) (err error) {
	if w.gcs, err = bed.StartGCS(ctx, bucket); err != nil {
		return err
	}
	if err := os.Setenv(emulator, w.gcs.Address); err != nil {
		return err
	}
	if w.far, err = gcs.Open(ctx, bucket, ""); err != nil {
		return err
	}
	if err := w.agentFor(ctx, modeWireFirst); err != nil {
		return err
	}
	if _, err := w.checkpoint(ctx, pod.ID, w.snapshot); err != nil {
		return err
	}
	w.wire = newWire(w.gcs.Address, wireRate, wireLatency)
	return os.Setenv(emulator, w.wire.address())
}

func (w *wakes) close(ctx context.Context) error {
	var errs []error
	if w.known != "" { // restores.close removes the snapshot from the default agent's stores
		errs = append(errs, w.agentFor(ctx, modeHot))
	}
	if w.wire != nil {
		w.wire.close()
	}
	if w.far != nil {
		errs = append(errs, w.far.Close())
	}
	if w.gcs != nil {
		errs = append(errs, w.gcs.Stop(ctx))
	}
	return errors.Join(append(errs, w.restores.close(ctx))...)
}

// behindWire reports whether a mode restores from the store behind the wire.
func behindWire(mode string) bool { return mode == modeWireFirst || mode == modeWireAgain }

// agentFor has the agent that a mode needs take the place of the one there is. Behind the wire that is a new one, with
// a state that knows nothing.
func (w *wakes) agentFor(ctx context.Context, mode string) (err error) {
	var flags []string
	if behindWire(mode) {
		w.count++
		flags = []string{"--state-dir=" + filepath.Join(w.away, strconv.Itoa(w.count)), "--store=gs://" + bucket}
	}
	if now := strings.Join(flags, " "); now != w.known {
		w.known = now
		err = w.restartAgent(ctx, flags...)
	}
	return err
}

// fetched returns how many bytes were fetched so far: over the wire or, without it, by the agent from any file. What
// runsc reads by itself is not counted.
func (w *wakes) fetched(mode string) (int64, error) {
	if behindWire(mode) {
		return w.wire.passed.Load(), nil
	}
	if mode == modeHot || mode == modeCold {
		return w.agentRead()
	}
	return 0, nil
}

// agentRead returns how many bytes the agent has read, by the kernel's account.
func (w *wakes) agentRead() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", w.daemon.PID()))
	if err != nil {
		return 0, err
	}
	value, _, _ := strings.Cut(strings.TrimPrefix(string(data), "rchar: "), "\n")
	return strconv.ParseInt(value, 10, 64)
}

// forgetWorkingSet removes the working set from the store behind the wire, if there is one.
func (w *wakes) forgetWorkingSet(ctx context.Context) error {
	name, err := w.workingSet(ctx)
	if err != nil || name == "" {
		return err
	}
	return w.far.Delete(ctx, name)
}

// workingSet returns the name of the working set in the store behind the wire, or "" if there is none.
func (w *wakes) workingSet(ctx context.Context) (name string, err error) {
	err = w.far.List(ctx, "", func(o storage.ObjectInfo) error {
		if strings.HasSuffix(o.Name, workingSetObject) {
			name = o.Name
		}
		return nil
	})
	return name, err
}

// awaitWorkingSet waits until a restore has loaded everything, and its working set is in the store.
func (w *wakes) awaitWorkingSet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	return bed.Until(ctx, func() error {
		if err := isLoaded(); err != nil {
			return err
		}
		name, err := w.workingSet(ctx)
		if err == nil && name == "" {
			err = errors.New("no working set was recorded")
		}
		return err
	})
}

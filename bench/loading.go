package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// The modes of the benchmark of checkpoints while a sandbox loads.
const (
	modeLoaded      = "loaded"
	modeLoadingHot  = "loading-hot"
	modeLoadingSlow = "loading-slow"
)

const (
	// slowRate is what the slow store answers, in bytes per second, all answers together.
	slowRate = 32 << 20
	// loadTime bounds the wait until a sandbox is loaded.
	loadTime = time.Minute
	bucket   = "bucket"
)

// loadings measures the pause of the first checkpoint of a restored pod, in a store behind a slow link.
type loadings struct {
	*node
	mib   int
	store *bed.GCS
	wire  *wire
	dir   string // of the agents' states
	count int    // of measurements
}

func prepareLoading(ctx context.Context, n *node, mib int) (_ subject, err error) {
	l := &loadings{node: n, mib: mib}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close(context.WithoutCancel(ctx)))
		}
	}()
	if l.dir, err = os.MkdirTemp("", "loading"); err != nil {
		return nil, err
	}
	if l.store, err = bed.StartGCS(ctx, bucket); err != nil {
		return nil, err
	}
	l.wire = newWire(l.store.Address, slowRate, 0)
	if err := os.Setenv("STORAGE_EMULATOR_HOST", l.wire.address()); err != nil {
		return nil, err
	}
	if err := l.begin(ctx, "hot"); err != nil {
		return nil, err
	}
	pod, err := runWorkload(ctx, n, mib)
	if err != nil {
		return nil, err
	}
	_, err = l.checkpoint(ctx, pod.ID, "saved")
	return l, errors.Join(err, n.bed.RemovePod(ctx, pod.ID))
}

func (l *loadings) close(ctx context.Context) error {
	err := os.RemoveAll(l.dir)
	if l.wire != nil {
		l.wire.close()
	}
	if l.store != nil {
		err = errors.Join(err, l.store.Stop(ctx))
	}
	return err
}

// begin has an agent with the named state take the place of the one there is.
func (l *loadings) begin(ctx context.Context, state string) (err error) {
	return l.restartAgent(ctx, "--state-dir="+filepath.Join(l.dir, state), "--store=gs://"+bucket)
}

// measure implements subject: the longest gap that the workload saw during the first checkpoint after
// its restore.
func (l *loadings) measure(ctx context.Context, mode string) (took time.Duration, err error) {
	l.count++
	state := "hot"
	if mode == modeLoadingSlow {
		state = fmt.Sprintf("cold-%d", l.count) // of a node that has nothing of the snapshot
	}
	if err := l.begin(ctx, state); err != nil {
		return 0, err
	}
	pod, err := l.bed.RunPod(ctx, l.serving(fmt.Sprintf("loading-%d", l.count), l.mib, restoreFrom("saved")))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)) }()
	if mode == modeLoaded {
		ctx, cancel := context.WithTimeout(ctx, loadTime)
		defer cancel()
		if err := bed.Until(ctx, isLoaded); err != nil {
			return 0, err
		}
	}
	return l.firstPause(ctx, mode, pod)
}

// firstPause makes a checkpoint of the pod, and removes it.
func (l *loadings) firstPause(ctx context.Context, mode string, pod *bed.Pod) (time.Duration, error) {
	if err := ask(ctx, pod, "/gap?reset=1", nil); err != nil {
		return 0, err
	}
	if mode == modeLoadingSlow && isLoaded() == nil {
		return 0, errors.New("the pod was loaded before its checkpoint")
	}
	begin, name := time.Now(), fmt.Sprintf("loading-%d", l.count)
	end, err := l.checkpoint(ctx, pod.ID, name)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, gapTime); err != nil {
		return 0, err
	}
	var report answers.Gaps
	if err := ask(ctx, pod, "/gap", &report); err != nil {
		return 0, err
	}
	took, err := longest(report.Gaps, begin, end)
	return took, errors.Join(err, l.remove(ctx, name))
}

// isLoaded returns an error while the agent has a restore under way.
func isLoaded() error {
	left, err := filepath.Glob("/run/diapause/requests/*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d restores are under way", len(left))
	}
	return err
}

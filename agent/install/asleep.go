package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/sleep"
)

// ErrAsleep is the kind of error of [Install] while pods sleep that the new version of gVisor could not wake.
var ErrAsleep = errors.New("pods sleep that only the installed gVisor can wake")

// maxNamed bounds how many pods an error names.
const maxNamed = 10

// spareAsleep returns an error of kind ErrAsleep if the version of gVisor is about to change while pods sleep.
func (o Options) spareAsleep(ctx context.Context) error {
	pods, err := o.asleep(ctx)
	if err != nil || len(pods) == 0 {
		return err
	}
	next, err := runsc.Version(ctx, o.source(runscProgram))
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	now, err := runsc.Version(ctx, o.host(o.Dir, "bin", runscProgram))
	if now == next {
		return nil
	}
	if err != nil { // it wakes nobody, but the one that belongs there would
		now = fmt.Sprintf("unknown (%v)", err)
	}
	if o.EndAsleep {
		o.Logger.Warn("pods that sleep end at their next wake", "pods", len(pods), "gvisor", now, "next", next)
		return nil
	}
	return fmt.Errorf("install: %w: %d, %s; installed is version %s, this one brings %s, under which they would end at "+
		"their next wake: put the former image back and wake them first, or give install the argument --end-sleeping-pods",
		ErrAsleep, len(pods), some(pods), now, next)
}

// some names the first pods of a list.
func some(pods []string) string {
	if n := len(pods) - maxNamed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(pods[:maxNamed], ", "), n)
	}
	return strings.Join(pods, ", ")
}

// asleep returns the pods of the node that sleep, or slept when it went down.
func (o Options) asleep(ctx context.Context) (pods []string, err error) {
	dir := o.host(sleep.Reminders)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("install: look for pods that sleep: %w", err)
	}
	known := map[string]bool{}
	err = o.containerd(ctx, func(ctx context.Context, c *cri.Client) (err error) {
		known, err = c.IDs(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("install: look for pods that sleep: %w", err)
	}
	for _, e := range entries {
		r, err := sleep.ReadReminder(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, sleep.ErrNewer):
			pods = append(pods, "a pod that a newer agent has put to sleep")
		case err == nil && known[r.Sandbox]: // otherwise the pod is gone, or nobody can read of which it is
			pods = append(pods, r.Pod.String())
		}
	}
	slices.Sort(pods)
	return pods, nil
}

package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
	"github.com/containerd/errdefs"
)

// unreadableSuffix is that of a record which could not be made sense of. The file is kept for whoever looks into it.
const unreadableSuffix = ".unreadable"

// errNoRecord is the kind of error of a file that is not, or no longer, a record.
var errNoRecord = errors.New("not a record")

// lose notes that the record of a request cannot be read. One that the disk does not give now may be
// read by the next agent; any other is set aside.
func (j *journal) lose(id string, err error) {
	j.log.Error("journal entry unreadable; its request is given up, and its snapshot, if there is one, stays on this node",
		"request", id, "error", err)
	j.lost = append(j.lost, id)
	if errors.Is(err, errNoRecord) {
		j.setAside(id)
	}
}

// setAside keeps a record that says nothing out of the way of a later one.
func (j *journal) setAside(id string) {
	path := j.path(id)
	if err := os.Rename(path, strings.TrimSuffix(path, ".json")+unreadableSuffix); err != nil {
		j.log.Warn("unreadable journal entry not set aside", "request", id, "error", err)
	}
}

// resumeLost resumes sandboxes that were paused for requests whose records cannot be read: nobody knows
// any more what they are to wait for. What such a request has saved stays in the spool.
func (a *Agent) resumeLost(ctx context.Context) {
	if len(a.journal.lost) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	pods, err := a.cri.Pods(ctx)
	if err != nil {
		a.log.Error("pods paused for requests whose records are unreadable go on when their lease runs out", "error", err)
		return
	}
	for _, pod := range pods {
		if !pod.Ready || pod.CheckRuntime() != nil {
			continue
		}
		for _, id := range a.journal.lost {
			a.endLost(ctx, pod, id)
		}
	}
}

// endLost resumes a pod if it was paused for a request. A shim that knows no leases cannot tell for
// which: there the pod is resumed if it is paused at all.
func (a *Agent) endLost(ctx context.Context, pod *cri.Pod, id string) {
	err := a.cri.EndPause(ctx, pod.ID, id)
	if errors.Is(err, lease.ErrRanOut) {
		return
	}
	if errdefs.IsInvalidArgument(err) {
		err = a.resumeIfPaused(ctx, pod.ID)
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	a.log.Log(ctx, level, "resume a pod, in case it is paused for a request whose record is unreadable",
		"pod", pod.String(), "request", id, "error", err)
}

// Package lives knows which pods of this node have run. A snapshot restores a new pod. If a pod that has run loses its
// sandbox, by an OOM kill, a crash or a reboot, it starts again as Kubernetes starts it: what it has done since its
// snapshot must not be undone unless somebody asks for that.
package lives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/past"
)

// Past is what is known of a pod whose sandbox is being made.
type Past struct {
	// Ran: the pod has run. One of its sandboxes was let start cold, or its restore was complete.
	Ran bool
	// Sandbox is the one in which it ran last.
	Sandbox string
	// Stopped is the snapshot after which Diapause itself ended that sandbox. Zero: it did not.
	Stopped snapshots.ID
}

// Config is what Lives work with.
type Config struct {
	Dir     string // of the notes, where shims look for them; must survive a reboot
	Runtime Runtime
	Journal *journal.Journal
	Cluster Cluster // nil: there is none
	Logger  *slog.Logger
}

// Runtime is what Lives need of containerd. *cri.Client implements it.
type Runtime interface {
	LastRun(ctx context.Context, podUID, except string) (id string, err error)
	UIDs(ctx context.Context) (map[string]bool, error)
}

// Cluster is what Lives need of the cluster that a node belongs to.
type Cluster interface {
	// PodUIDs returns the UIDs of the pods of this node. It does not wait for the API server.
	PodUIDs(ctx context.Context) (map[string]bool, error)
}

// Lives are the pasts of a node's pods. Their methods may be called concurrently, for one sandbox one after the other.
type Lives struct {
	Config
}

// New returns the pasts of a node's pods.
func New(c Config) *Lives { return &Lives{Config: c} }

// Of returns the past of a pod whose next sandbox is being made. If that sandbox was ended after a checkpoint and this
// is not known yet, Of waits for it.
func (l *Lives) Of(ctx context.Context, pod snapshot.PodRef, sandbox string) (Past, error) {
	last, err := l.last(ctx, pod, sandbox)
	if err != nil || last == "" {
		return Past{}, err
	}
	id, err := l.stopped(ctx, last)
	if err != nil {
		return Past{}, fmt.Errorf("pod %s: sandbox %s, which it had before: %w", pod, last, err)
	}
	return Past{Ran: true, Sandbox: last, Stopped: id}, nil
}

// last returns the sandbox in which a pod ran last, apart from one, or "". The note does not know of a sandbox that
// started while no agent and no shim of this version could write. So a sandbox that containerd knows, and the note does
// not, has run. If the note cannot be read, the pod has run, too.
func (l *Lives) last(ctx context.Context, pod snapshot.PodRef, sandbox string) (string, error) {
	if pod.UID == "" {
		return "", nil
	}
	known, err := l.Runtime.LastRun(ctx, pod.UID, sandbox)
	if err != nil {
		return "", fmt.Errorf("pod %s may have run before: %w", pod, err)
	}
	n, err := past.Read(l.Dir, pod.UID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return known, nil
	case err != nil:
		l.Logger.Error("a pod is not restored: it may have run before", "pod", pod.String(), "error", err)
		return unreadable, nil
	case known == "" || n.Knows(known):
		return n.Sandbox, nil
	}
	return known, nil
}

// unreadable stands for the sandbox of a pod whose note cannot be read.
const unreadable = "unreadable"

// stopPoll is how often it is looked whether a sandbox has been stopped.
const stopPoll = 50 * time.Millisecond

// errUnsettled means that it is not known yet what a checkpoint has done to its sandbox.
var errUnsettled = errors.New("not known yet whether it was stopped after its checkpoint")

// stopped returns the snapshot after which the agent has ended a sandbox. It is zero if the agent has not.
func (l *Lives) stopped(ctx context.Context, sandbox string) (snapshots.ID, error) {
	for {
		id, err := l.stoppedNow(sandbox)
		if err == nil {
			return id, nil
		}
		select {
		case <-time.After(stopPoll):
		case <-ctx.Done():
			return id, err
		}
	}
}

func (l *Lives) stoppedNow(sandbox string) (id snapshots.ID, err error) {
	for _, r := range l.Journal.Where(func(r *journal.Record) bool { return r.SandboxID == sandbox && r.Stop }) {
		switch {
		case r.Stopped:
			return snapshots.ID{Key: r.Key, UID: r.UID}, nil
		case r.RunsOn == "" && (r.Stage == journal.StagePaused || r.Stage == journal.StageSpooled):
			err = errUnsettled
		}
	}
	return id, err
}

// Start notes, durably, that a sandbox is let start cold. If that fails, containerd still knows the sandbox.
func (l *Lives) Start(pod snapshot.PodRef, sandbox string) {
	l.change(pod, true, func(n *past.Note) bool {
		n.Start(sandbox)
		return true
	})
}

// Try notes that a sandbox is to be restored. If the note is lost, the sandbox counts as one that has run. Before is
// the pod's past without that sandbox.
func (l *Lives) Try(pod snapshot.PodRef, sandbox string, before Past) {
	l.change(pod, false, func(n *past.Note) bool {
		if !n.Knows(before.Sandbox) {
			n.Start(before.Sandbox)
		}
		n.Try(sandbox)
		return true
	})
}

// Complete notes, durably, that the restore of a sandbox is complete. The pod's shim has, unless it is of an earlier
// version.
func (l *Lives) Complete(pod snapshot.PodRef, sandbox string) {
	l.change(pod, true, func(n *past.Note) bool { return n.Complete(sandbox) })
}

// change changes the note of a pod, if f returns true. A note that cannot be read is written anew.
func (l *Lives) change(pod snapshot.PodRef, durably bool, f func(*past.Note) bool) {
	if pod.UID == "" {
		return
	}
	n, err := past.Read(l.Dir, pod.UID)
	if err != nil {
		n = past.Note{}
	}
	n.Pod = pod
	if !f(&n) {
		return
	}
	if err := n.Write(l.Dir, durably); err != nil {
		l.Logger.Error("if containerd forgets the pod's sandboxes, a snapshot may undo what it has done", "pod",
			pod.String(), "error", err)
	}
}

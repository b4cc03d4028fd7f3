package shim

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/past"
	"diapause.dev/runsc/sleep"
)

// Annotations of an OCI spec that give a container's place in its pod, as containerd's CRI and CRI-O set them.
var (
	typeAnnotations    = []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}
	nameAnnotations    = []string{"io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName"}
	uidAnnotations     = []string{"io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"}
	sandboxAnnotations = []string{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"}

	podNamespaceAnnotations = []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}
	podNameAnnotations      = []string{"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"}
)

// Annotations of a pod that ask for a restore.
const (
	annotationRestoreFrom = "diapause.dev/restore-from"
	annotationSnapshot    = "podsnapshot.gke.io/ps-name"
	annotationOnFailure   = "diapause.dev/on-restore-failure"
	onFailureFail         = "Fail"
	onFailureColdStart    = "ColdStart" // another value forbids it, also an unknown one
)

// pod is what a container's OCI spec says about its pod.
type pod struct {
	uid         string // given by Kubernetes; empty: none
	sandbox     string // id of the sandbox container; empty: the container belongs to no pod
	isSandbox   bool   // this container is the sandbox container
	container   string // this container's name in its pod; empty: it has none
	network     string // path of its network namespace; empty: it has none of its own
	cgroup      string // path of its cgroup, in the notation of an OCI spec
	annotations map[string]string
}

func podOf(annotations map[string]string) pod {
	return pod{
		uid:         first(annotations, uidAnnotations),
		sandbox:     first(annotations, sandboxAnnotations),
		isSandbox:   first(annotations, typeAnnotations) == "sandbox",
		container:   first(annotations, nameAnnotations),
		annotations: annotations,
	}
}

func first(m map[string]string, keys []string) string {
	for _, k := range keys {
		if v := m[k]; v != "" {
			return v
		}
	}
	return ""
}

// named reports whether the pod names a snapshot to be restored from.
func (p pod) named() bool {
	return p.annotations[annotationRestoreFrom] != "" || p.annotations[annotationSnapshot] != ""
}

// slept returns the snapshot that the pod is to be restored from because it slept when the node went down, or could not
// be woken. Otherwise ok is false.
func (p pod) slept() (key string, ok bool) {
	r, ok := p.reminder()
	if !ok {
		return "", false
	}
	due, err := r.Due()
	return r.Snapshot.String(), err == nil && due
}

// reminder returns the pod's reminder, if there is one that this shim can read.
func (p pod) reminder() (r sleep.Reminder, ok bool) {
	if p.uid == "" {
		return r, false
	}
	r, err := sleep.ReadReminder(sleep.ReminderPath(sleep.Reminders, p.uid))
	return r, err == nil
}

// remember has the pod's next sandbox restored from the snapshot of a reminder of this one, which could not be woken.
func (p pod) remember(r sleep.Reminder) error {
	if r.Sandbox != p.sandbox {
		return nil
	}
	r.Unwoken = true
	return r.Write(sleep.ReminderPath(sleep.Reminders, p.uid))
}

// forget forgets that the pod slept, before it starts anew. Otherwise the next agent would take it for one that has
// ended in its sleep.
func (p pod) forget() error {
	if _, ok := p.reminder(); !ok {
		return nil
	}
	return sleep.RemoveReminder(sleep.ReminderPath(sleep.Reminders, p.uid))
}

// must reports whether the pod must not start anew without an answer of the agent.
func (p pod) must() bool {
	_, slept := p.slept()
	return slept || p.strict()
}

// strict reports whether the pod must fail, and not start anew, if it cannot be restored.
func (p pod) strict() bool {
	v, ok := p.annotations[annotationOnFailure]
	return ok && v != onFailureColdStart
}

// started notes that this sandbox starts cold, and that the agent does not know it.
func (p pod) started() {
	p.note(func(n *past.Note) bool {
		n.Start(p.sandbox)
		return true
	})
}

// completed notes that the restore of this sandbox is complete.
func (p pod) completed() { p.note(func(n *past.Note) bool { return n.Complete(p.sandbox) }) }

// undone notes that the restore of this sandbox counts as failed, even if it was complete.
func (p pod) undone() { p.note(func(n *past.Note) bool { return n.Undo(p.sandbox) }) }

// note changes the note of the pod's past, durably, if f returns true. The agent has made the directory. If the note is
// lost, containerd still knows the sandbox.
func (p pod) note(f func(*past.Note) bool) {
	if p.uid == "" {
		return
	}
	n, err := past.Read(past.Dir, p.uid)
	if errors.Is(err, os.ErrNotExist) {
		n.Pod = snapshot.PodRef{
			Namespace: first(p.annotations, podNamespaceAnnotations), Name: first(p.annotations, podNameAnnotations), UID: p.uid,
		}
		err = nil
	}
	if err == nil && f(&n) {
		err = n.Write(past.Dir, true)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		slog.Warn("not noted whether the pod has run", "sandbox", p.sandbox, "error", err)
	}
}

// memoryLimit returns the pod's memory limit in bytes, or 0 if there is none. A limit that cannot be read counts as
// none: the kernel kills a pod that exceeds it all the same.
func (p pod) memoryLimit() int64 {
	limit, err := cgroup.LimitAbove(p.cgroup)
	if err != nil {
		slog.Warn("read the sandbox's memory limit", "sandbox", p.sandbox, "error", err)
	}
	if err != nil || limit == cgroup.Unlimited {
		return 0
	}
	return limit
}

// owns reports whether a cgroup is the pod's own. Its name then contains the sandbox's id or the pod's UID, with
// dashes or, under systemd, with underscores. A sandbox may also be in somebody else's cgroup: if runsc ignores
// cgroups, it is in containerd's.
func (p pod) owns(dir string) bool {
	name := filepath.Base(dir)
	for _, id := range []string{p.sandbox, p.uid, strings.ReplaceAll(p.uid, "-", "_")} {
		if id != "" && strings.Contains(name, id) {
			return true
		}
	}
	return false
}

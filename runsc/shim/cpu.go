package shim

import (
	"context"
	"errors"
	"os"
	"time"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/sidecar"
	"github.com/containerd/log"
)

// A pod with a limit of processor time would be paused, and come back, many times as slowly as another one: the kernel
// has it wait for the next period again and again, and the sidecar with it. So the limit is taken away for as long as
// the pod is saved or restored. Its weight against other pods stays. The record of it, and who puts it back, is in
// limits.go.

// unlimitedTime bounds how long a restore may go on without the pod's limit of processor time. A restore whose store is
// slow waits more than it computes.
const unlimitedTime = 30 * time.Second

// unlimitToSave takes the limit of processor time from the sandbox, unless the sidecar's options say otherwise. The
// function that it returns puts the limit back.
func (s *sandbox) unlimitToSave(o sidecar.Options) (putBack func()) {
	s.unlimit(o)
	return func() { s.cpu.putBack(s.cpu.grown) }
}

// unlimitToRestore takes the limit of processor time from the sandbox until the request at the image path is done, or
// unlimitedTime is over.
func (s *sandbox) unlimitToRestore(path string) {
	o, err := optionsIn(path)
	if err != nil {
		log.L.WithError(err).Warnf("sandbox %s keeps its CPU limit", s.pod.sandbox)
		return
	}
	s.unlimit(o)
	s.cpu.putBackWhen(func(context.Context) bool { return isDone(path) })
}

// unlimit takes the limit of processor time from the sandbox. If it cannot, the limit stays, and all takes longer.
func (s *sandbox) unlimit(o sidecar.Options) {
	if o.KeepCPULimit {
		return
	}
	err := s.cpu.raise(func() ([]cgroup.Change, error) { return cgroup.UnlimitCPU(s.pod.cgroup, s.pod.owns) })
	if err != nil {
		log.L.WithError(err).Warnf("sandbox %s keeps its CPU limit", s.pod.sandbox)
	}
}

// isDone reports whether the agent has removed a request: then the sandbox has everything.
func isDone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

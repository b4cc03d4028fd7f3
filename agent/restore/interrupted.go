package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

const (
	// interruptedTime bounds how long the end of an interrupted restore's sandbox is waited for. Containerd may be away.
	interruptedTime = 10 * time.Minute
	// interruptedPoll is the first pause between two looks at the sandbox. Each pause is twice as long as the one before,
	// up to interruptedPollMax.
	interruptedPoll    = time.Second
	interruptedPollMax = 30 * time.Second
	// retryEvery is how often RetryLoop looks for pods that nobody has dealt with. An agent may have been killed
	// meanwhile.
	retryEvery = 15 * time.Second
	// lookTime bounds one look, and the removal after it. The shim of a sandbox that is ending may not answer containerd.
	lookTime = 10 * time.Second
)

// errNotEnded means that a sandbox or one of its containers has not ended yet.
var errNotEnded = errors.New("its sandbox has not ended")

// RetryLoop makes the kubelet try again what was interrupted, until ctx is done: restores whose sidecar has gone while
// no agent was running, and what an earlier agent has not got round to.
func (rs *Restores) RetryLoop(ctx context.Context) error {
	if rs.reports.cluster == nil {
		return nil
	}
	rs.retryOrphans()
	rs.retries.loop(ctx)
	return nil
}

// retryOrphans deals with the restores whose sidecar has gone while no agent was running, and with it the sandbox.
func (rs *Restores) retryOrphans() {
	for _, request := range rs.registry.written() {
		if r, err := rs.registry.recall(request); err == nil && rs.registry.orphan(r) {
			rs.tryAgain(r.SandboxID, r.Scope)
		}
	}
}

// tryAgain has a pod restored again whose sandbox has ended before it was restored, in the background, if a cluster
// has it restored. If only root file systems are restored, containers do run before all have started, so all stay.
func (rs *Restores) tryAgain(sandbox string, scope snapshot.Scope) {
	if rs.reports.cluster != nil && scope != snapshot.RootfsOnly {
		rs.retries.tryAgain(sandbox)
	}
}

// retries make the kubelet try again to restore pods. Its methods may be called concurrently.
type retries struct {
	runtime Runtime
	life    *lifetime.Life
	log     *slog.Logger

	mu     sync.Mutex
	trying map[string]bool // by sandbox; see tryAgain
}

// loop looks for pods that nobody has dealt with, until ctx is done.
func (t *retries) loop(ctx context.Context) {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		t.retryUnstarted(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// retryUnstarted deals with pods of which nothing has ever started, and nothing can: their sandbox has ended.
func (t *retries) retryUnstarted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	sandboxes, err := t.runtime.Unstarted(ctx)
	if err != nil {
		t.log.Warn("not known whether a restore was interrupted", "error", err)
	}
	for _, id := range sandboxes {
		t.tryAgain(id)
	}
}

// tryAgain removes, in the background, the containers of a sandbox that has ended before it was restored, if one of
// them never started.
//
// That happens if containerd ends while it starts a container of the pod. The kubelet then makes another sandbox, which
// is restored again. A pod with the restart policy Never gets one only if it has no container, and otherwise stays
// Pending (computePodActions in the kubelet's pkg/kubelet/kuberuntime). What these containers were is in the snapshot
// still: their sandbox was ended because it was not restored. Where no kubelet runs, whoever has asked for the restore
// removes the pod.
func (t *retries) tryAgain(sandbox string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trying[sandbox] {
		return
	}
	t.trying[sandbox] = true
	t.life.Go(func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.trying, sandbox)
		}()
		ctx, cancel := context.WithTimeout(t.life.Context(), interruptedTime)
		defer cancel()
		n, err := t.removeUnstarted(ctx, sandbox)
		switch {
		case t.life.Context().Err() != nil: // the next agent looks again
		case err != nil:
			t.log.Warn("a pod whose restore was interrupted may stay Pending", "sandbox", sandbox, "error", err)
		case n > 0:
			t.log.Info("the kubelet restores a pod again: its sandbox has ended before it was restored", "sandbox", sandbox)
		}
	})
}

// removeUnstarted waits until a sandbox has ended. If one of its containers never started, it removes all of them and
// returns how many these are.
func (t *retries) removeUnstarted(ctx context.Context, sandbox string) (removed int, err error) {
	for wait := interruptedPoll; ; wait = min(2*wait, interruptedPollMax) {
		removed, err = t.removeEnded(ctx, sandbox)
		if err == nil || errors.Is(err, cri.ErrNotFound) {
			return removed, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return removed, err
		}
	}
}

// removeEnded is removeUnstarted without the wait: for a sandbox that has not ended it returns errNotEnded.
func (t *retries) removeEnded(ctx context.Context, sandbox string) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	pod, err := t.runtime.Get(ctx, sandbox)
	if err != nil {
		return 0, err
	}
	in := func(s cri.State) bool {
		return slices.ContainsFunc(pod.Containers, func(x cri.Container) bool { return x.State == s })
	}
	if pod.Ready || in(cri.StateRunning) {
		return 0, fmt.Errorf("pod %s: %w", pod, errNotEnded)
	}
	if !in(cri.StateCreated) {
		return 0, nil
	}
	for _, x := range pod.Containers {
		if err := t.runtime.RemoveContainer(ctx, x.ID); err != nil {
			return 0, err
		}
	}
	return len(pod.Containers), nil
}

package shim

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	runc "github.com/containerd/go-runc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// A pod that sleeps is ready if its sandbox has been created again. With the repaired build its kernel may be loaded,
// too: the sandbox waits for the pod's containers then, whose gofers are there, and for its network. It has nothing of
// the pod's memory: the agent holds that until the wake (agent/restore/beforehand.go). A wake goes on with that
// sandbox. If anything is wrong with it, it is discarded, and the pod wakes as any other. The agent decides which pods
// are ready.

// readiness is how far the sandbox of a pod that sleeps is.
type readiness int

const (
	notReady readiness = iota
	created            // runsc has created the sandbox container
	kernelLoaded
)

// String returns how far it is, for the log.
func (r readiness) String() string { return [...]string{"no", "created", "kernel loaded"}[r] }

// makeReady carries out the order to make the pod ready, with its kernel loaded or not. Who wants to wake or end the
// pod meanwhile waits for that. A pod that is not asleep stays as it is, and the error is of kind ErrUnfit.
func (p *podSleep) makeReady(ctx context.Context, load bool) error {
	give, err := p.state.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if p.state.Now() != sleepstate.Asleep {
		return fmt.Errorf("%w: it is %v", sleep.ErrUnfit, p.state.Now())
	}
	if p.ready != notReady && !p.c.bundle.gone() {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.WithoutCancel(ctx), p.namespace), wakeLimit)
	defer cancel()
	p.discardReady(ctx)
	if load = load && len(p.others()) > 0; load {
		if err := p.tryReady(ctx, kernelLoaded, p.loadKernel); err != nil {
			slog.Warn("the sandbox is made ready to wake without its kernel", "sandbox", p.c.bundle.id, "error", err)
			load = false
		}
	}
	if !load {
		if err := p.tryReady(ctx, created, p.createSandbox); err != nil {
			return fmt.Errorf("create its sandbox again: %w", err)
		}
	}
	p.warn(sleep.MarkReady(p.image), "mark that it is ready")
	slog.Info("the sandbox is ready to wake", "sandbox", p.c.bundle.id, "ready", p.ready, "took", time.Since(began))
	return nil
}

// tryReady has f make the pod ready. If that fails, it leaves nothing of it.
func (p *podSleep) tryReady(ctx context.Context, r readiness, f func(context.Context) error) error {
	p.ready = r // runsc may create a part
	err := f(ctx)
	if err != nil {
		p.discardReady(ctx)
	}
	return err
}

// loadKernel has runsc create the sandbox container and load its kernel, and prepare the other containers.
func (p *podSleep) loadKernel(ctx context.Context) error {
	runtime, err := p.c.runtime(ctx)
	if err != nil {
		return err
	}
	if err := sleep.HoldMemory(p.image); err != nil { // until the wake, also if this sandbox does not last
		return err
	}
	if err := revive.Sandbox(ctx, runtime, p.c.bundle.id, p.c.bundle.dir, p.image, true); err != nil {
		return fmt.Errorf("load its kernel: %w", whyRunsc(err, runtime.Log))
	}
	return p.eachOther(ctx, p.prepare)
}

// createSandbox has runsc create the sandbox container.
func (p *podSleep) createSandbox(ctx context.Context) error {
	runtime, err := p.c.runtime(ctx)
	if err != nil {
		return err
	}
	null, err := runc.NewNullIO()
	if err != nil {
		return err
	}
	defer null.Close()
	b := p.c.bundle
	return runtime.Create(ctx, b.id, b.dir, &runsccmd.CreateOpts{IO: null, PidFile: filepath.Join(b.dir, "init.pid")})
}

// dropReady carries out the order to give up what makeReady has made.
func (p *podSleep) dropReady(ctx context.Context) error {
	give, err := p.state.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if p.state.Answered() {
		p.discardReady(context.WithoutCancel(ctx))
	}
	return nil
}

// discardReady ends the sandbox of a pod that is ready. The turn is taken.
func (p *podSleep) discardReady(ctx context.Context) {
	if p.ready == notReady {
		return
	}
	p.ready = notReady
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	p.warn(sleep.UnmarkReady(p.image), "mark that it is not ready")
	p.warn(p.c.bundle.kill(), "end the sandbox that was ready")
	p.warn(p.dropRestores(ctx), "end the restore of its containers")
	p.remove(ctx)
}

// takeReady returns how far the sandbox is for the wake that begins. One that has ended or waits in vain is discarded.
func (p *podSleep) takeReady(ctx context.Context) readiness {
	if p.ready != notReady && (p.damaged.Load() || p.c.bundle.gone()) {
		slog.Warn("the sandbox was ready to wake, and has ended or waits in vain: it is created again",
			"sandbox", p.c.bundle.id)
		p.discardReady(ctx)
	}
	return p.ready
}

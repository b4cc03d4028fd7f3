package shim

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// A pod that sleeps is ready if its sandbox has been created again, and not restored: it has no memory of the pod, and
// has read nothing of its snapshot. A wake restores that sandbox, and need not create one. If anything is wrong with
// it, it is discarded, and the pod wakes as any other. The agent decides which pods are ready.

// makeReady carries out the order to make the pod ready. Who wants to wake or end the pod meanwhile waits for that. A
// pod that is not asleep stays as it is, and the error is of kind ErrUnfit.
func (p *podSleep) makeReady(ctx context.Context) error {
	give, err := p.state.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if p.state.Now() != sleepstate.Asleep {
		return fmt.Errorf("%w: it is %v", sleep.ErrUnfit, p.state.Now())
	}
	if p.ready && !p.c.bundle.gone() {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.WithoutCancel(ctx), p.namespace), wakeLimit)
	defer cancel()
	p.discardReady(ctx)
	if err := p.createSandbox(ctx); err != nil {
		p.ready = true // runsc may have created a part
		p.discardReady(ctx)
		return fmt.Errorf("create its sandbox again: %w", err)
	}
	p.ready = true
	p.warn(sleep.MarkReady(p.image), "mark that it is ready")
	log.L.Infof("sandbox %s is ready to wake, after %v", p.c.bundle.id, time.Since(began))
	return nil
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
	if !p.ready {
		return
	}
	p.ready = false
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	p.warn(sleep.UnmarkReady(p.image), "mark that it is not ready")
	p.warn(p.c.bundle.kill(), "end the sandbox that was ready")
	p.remove(ctx)
}

// takeReady reports whether the wake that begins has a sandbox that was created before. One that has ended is
// discarded.
func (p *podSleep) takeReady(ctx context.Context) bool {
	if p.ready && p.c.bundle.gone() {
		log.L.Warnf("sandbox %s was ready to wake, and has ended: it is created again", p.c.bundle.id)
		p.discardReady(ctx)
	}
	return p.ready
}

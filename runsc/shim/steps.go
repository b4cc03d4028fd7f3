package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// quietLimit bounds the wait for the end of a killed sandbox.
const quietLimit = 10 * time.Second

// steps are what the containers of a pod do on its way to sleep and back.
type steps struct {
	next  extension.TaskServiceExt // gVisor's service
	c     *containers
	s     *sandbox // nil: the container belongs to no pod
	state *sleepstate.Machine
	*residents

	running []*resident // the containers that run, the sandbox container last; guarded by the turn of state
}

// each has all containers of the pod that run take a step, at the same time.
func (p *steps) each(ctx context.Context, step func(context.Context, *resident) error) error {
	return inParallel(ctx, p.running, step)
}

// eachOther is each without the sandbox container.
func (p *steps) eachOther(ctx context.Context, step func(context.Context, *resident) error) error {
	return inParallel(ctx, p.others(), step)
}

// others returns the containers that run, without the sandbox container.
func (p *steps) others() []*resident { return p.running[:max(len(p.running)-1, 0)] }

func inParallel(ctx context.Context, all []*resident, step func(context.Context, *resident) error) error {
	var g errgroup.Group
	for _, x := range all {
		g.Go(func() error { return step(ctx, x) })
	}
	return g.Wait()
}

// checkSleepable checks that a container can sleep, and notes what will be answered for it.
func (p *steps) checkSleepable(ctx context.Context, x *resident) error {
	release, ok := p.state.Through()
	if !ok {
		return fmt.Errorf("%w: it sleeps", sleep.ErrUnfit)
	}
	defer release()
	if err := p.fit(x); err != nil {
		return err
	}
	state, err := p.c.stateFor(ctx, forStatus, &task.StateRequest{ID: x.id})
	if err != nil {
		return fmt.Errorf("%w: container %s: its state: %w", sleep.ErrUnfit, x.id, err)
	}
	if state.Status != tasktypes.Status_RUNNING {
		return fmt.Errorf("%w: container %s is %s", sleep.ErrUnfit, x.id, strings.ToLower(state.Status.String()))
	}
	pids, err := p.next.Pids(ctx, &task.PidsRequest{ID: x.id})
	if errors.Is(err, errHung) { // perhaps a process that was added to it is being deleted: see containers.Delete
		pids, err = p.pidsUnanswered(x.id)
	}
	if err != nil || len(pids.GetProcesses()) == 0 {
		return fmt.Errorf("%w: container %s has no process: %w", sleep.ErrUnfit, x.id, err)
	}
	if stats, err := p.next.Stats(ctx, &task.StatsRequest{ID: x.id}); err != nil {
		p.warn(err, "statistics of container "+x.id)
	} else if _, err := x.usage.Whole(stats); err != nil {
		p.warn(err, "statistics of container "+x.id)
	}
	state.Pid = p.pidOf(x.id, state.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	x.state, x.pids = state, pids
	if x.streams != nil || x.id == p.c.bundle.id {
		return nil
	}
	if x.streams, err = openStreams(x.io.Stdout, x.io.Stderr); err != nil {
		return fmt.Errorf("%w: container %s: %w", sleep.ErrUnfit, x.id, err)
	}
	p.c.process.suppressed.keep(x.id, x.streams)
	return nil
}

// fit returns an error if a container has something that a sleep would destroy, or is in use. A probe counts, too, if
// it has not ended within probeLimit.
func (p *steps) fit(x *resident) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case x.io.Terminal:
		return fmt.Errorf("%w: container %s has a terminal", sleep.ErrUnfit, x.id)
	case x.io.Stdin != "":
		return fmt.Errorf("%w: container %s has a standard input", sleep.ErrUnfit, x.id)
	case p.c.roster.told(x.id): // its end may be about to come, and would be taken for that of the sandbox
		return fmt.Errorf("%w: container %s was told to end", sleep.ErrUnfit, x.id)
	case len(x.execs) > 0:
		return fmt.Errorf("%w: %d processes were started in container %s by exec", sleep.ErrInUse, len(x.execs), x.id)
	}
	return nil
}

// resize makes the change of a container's resources that came in its sleep, or before it.
func (p *steps) resize(ctx context.Context, x *resident) error {
	p.mu.Lock()
	resized, woken := x.resized, x.woken
	p.mu.Unlock()
	if resized == nil || !woken {
		return nil
	}
	if _, err := p.next.Update(ctx, resized); err != nil {
		return fmt.Errorf("container %s: %w", x.id, err)
	}
	return nil
}

// reportExit reports that a container has ended. Until gVisor's shim knows that, it must not be asked: it would ask
// runsc.
func (p *steps) reportExit(ctx context.Context, x *resident, status int) error {
	if r := x.revival.Load(); r != nil { // it keeps runsc's lock of the container
		r.Cancel()
	}
	p.c.process.suppressed.forget(x.id)
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: x.id, Status: status}
	known := make(chan error, 1)
	go func() {
		_, err := p.next.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: x.id})
		known <- err
	}()
	select {
	case err := <-known:
		if err != nil {
			return fmt.Errorf("container %s: wait for its end: %w", x.id, err)
		}
	case <-ctx.Done():
		return fmt.Errorf("container %s: wait for its end: %w", x.id, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.dead = true
	return nil
}

// runtimeOf returns runsc as it is run for a container.
func (p *steps) runtimeOf(ctx context.Context, x *resident) (*runsccmd.Runsc, error) {
	runtime, err := p.c.runtime(ctx)
	if err == nil {
		runtime.Log = filepath.Join(x.bundle, "log.json")
	}
	return runtime, err
}

// recreate begins to create a container of the pod again, other than the sandbox container. It returns before that is
// done.
func (p *steps) recreate(ctx context.Context, x *resident) error {
	return p.beginRestore(ctx, x, func(r *runsccmd.Runsc) (*revive.Revival, error) {
		return revive.Begin(r, x.id, x.bundle, x.streams, wakeLimit)
	})
}

// prepare does so in a sandbox whose kernel is loaded, and has all done for the container that can be done before the
// pod wakes.
func (p *steps) prepare(ctx context.Context, x *resident) error {
	first := x == p.others()[0] // sets the network
	return p.beginRestore(ctx, x, func(r *runsccmd.Runsc) (*revive.Revival, error) {
		return revive.Prepare(r, x.id, x.bundle, x.streams, wakeLimit, first)
	})
}

func (p *steps) beginRestore(ctx context.Context, x *resident,
	begin func(*runsccmd.Runsc) (*revive.Revival, error),
) error {
	runtime, err := p.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	p.c.process.terminals.again(x.id)
	r, err := begin(runtime)
	if err != nil {
		return fmt.Errorf("create container %s: %w", x.id, err)
	}
	x.revival.Store(r)
	return nil
}

// dropRestores ends what beginRestore has begun.
func (p *steps) dropRestores(ctx context.Context) error {
	return p.eachOther(ctx, func(ctx context.Context, x *resident) error {
		if r := x.revival.Swap(nil); r != nil {
			return r.Drop(ctx)
		}
		return nil
	})
}

// restoreContainer restores a container that is being created again. The last container's restore loads the sandbox.
func (p *steps) restoreContainer(ctx context.Context, x *resident) error {
	runtime, err := p.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	r := x.revival.Swap(nil)
	if r == nil {
		return fmt.Errorf("%w: container %s is not being created", sleep.ErrInvalid, x.id)
	}
	if err := r.GoOn(ctx); err != nil {
		return fmt.Errorf("restore container %s: %w", x.id, whyRunsc(err, runtime.Log))
	}
	return nil
}

// watchExit notes the process of a container that was woken, and reports its exit when it comes.
func (p *steps) watchExit(ctx context.Context, x *resident) error {
	runtime, err := p.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	pid, err := bundle{x.id, x.bundle}.process()
	if err != nil {
		return err
	}
	p.mu.Lock()
	x.woken = true
	if x.id == p.c.bundle.id {
		p.pid = uint32(pid)
	}
	p.mu.Unlock()
	p.c.process.suppressed.forget(x.id)
	go func() { // ends with the sandbox
		status, err := runtime.Wait(context.WithoutCancel(ctx), x.id)
		if err != nil {
			slog.Info("wait for a container", "container", x.id, "error", err)
			status = internalError
		}
		proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: x.id, Status: status}
	}()
	return nil
}

// warn logs what went wrong where nobody can be told.
func (p *steps) warn(err error, what string) {
	if err != nil {
		slog.Warn(what, "sandbox", p.c.bundle.id, "error", err)
	}
}

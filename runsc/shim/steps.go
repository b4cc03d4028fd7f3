package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/log"
	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// quietLimit bounds the wait for the end of a killed sandbox.
const quietLimit = 10 * time.Second

// each has all containers of the pod that run take a step, at the same time.
func (z *sleeper) each(ctx context.Context, step func(context.Context, *resident) error) error {
	return inParallel(ctx, z.running, step)
}

// eachOther is each without the sandbox container.
func (z *sleeper) eachOther(ctx context.Context, step func(context.Context, *resident) error) error {
	return inParallel(ctx, z.others(), step)
}

// others returns the containers that run, without the sandbox container.
func (z *sleeper) others() []*resident { return z.running[:max(len(z.running)-1, 0)] }

func inParallel(ctx context.Context, all []*resident, step func(context.Context, *resident) error) error {
	var g errgroup.Group
	for _, x := range all {
		g.Go(func() error { return step(ctx, x) })
	}
	return g.Wait()
}

// residents returns containers of this pod by their ids.
func (z *sleeper) residents(ids []string) (all []*resident, err error) {
	for _, id := range ids {
		x := z.of(id)
		if x == nil {
			return nil, fmt.Errorf("%w: its shim does not know container %s", sleep.ErrUnfit, id)
		}
		all = append(all, x)
	}
	return all, nil
}

// ready checks that a container can sleep, and notes what will be answered for it.
func (z *sleeper) ready(ctx context.Context, x *resident) error {
	release, ok := z.through()
	if !ok {
		return fmt.Errorf("%w: it sleeps", sleep.ErrUnfit)
	}
	defer release()
	if err := z.fit(x); err != nil {
		return err
	}
	state, err := z.c.stateFor(ctx, forStatus, &task.StateRequest{ID: x.id})
	if err != nil {
		return fmt.Errorf("%w: container %s: its state: %w", sleep.ErrUnfit, x.id, err)
	}
	if state.Status != tasktypes.Status_RUNNING {
		return fmt.Errorf("%w: container %s is %s", sleep.ErrUnfit, x.id, strings.ToLower(state.Status.String()))
	}
	pids, err := z.TaskServiceExt.Pids(ctx, &task.PidsRequest{ID: x.id})
	if errors.Is(err, errHung) { // perhaps a process that was added to it is being deleted: see containers.Delete
		pids, err = z.pidsUnanswered(x.id)
	}
	if err != nil || len(pids.GetProcesses()) == 0 {
		return fmt.Errorf("%w: container %s has no process: %w", sleep.ErrUnfit, x.id, err)
	}
	if stats, err := z.TaskServiceExt.Stats(ctx, &task.StatsRequest{ID: x.id}); err != nil {
		z.warn(err, "statistics of container "+x.id)
	} else if _, err := x.usage.whole(stats); err != nil {
		z.warn(err, "statistics of container "+x.id)
	}
	state.Pid = z.pidOf(x.id, state.Pid)
	z.mu.Lock()
	defer z.mu.Unlock()
	x.state, x.pids = state, pids
	if x.streams != nil || x.id == z.c.bundle.id {
		return nil
	}
	if x.streams, err = openStreams(x.io.Stdout, x.io.Stderr); err != nil {
		return fmt.Errorf("%w: container %s: %w", sleep.ErrUnfit, x.id, err)
	}
	quiet.keep(x.id, x.streams)
	return nil
}

// fit returns an error if something holds a container that would not survive a sleep.
func (z *sleeper) fit(x *resident) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch {
	case x.io.Terminal:
		return fmt.Errorf("%w: container %s has a terminal", sleep.ErrUnfit, x.id)
	case x.io.Stdin != "":
		return fmt.Errorf("%w: container %s has a standard input", sleep.ErrUnfit, x.id)
	case z.c.roster.told(x.id): // its end may be about to come, and would be taken for that of the sandbox
		return fmt.Errorf("%w: container %s was told to end", sleep.ErrUnfit, x.id)
	case len(x.execs) > 0:
		return fmt.Errorf("%w: %d processes were started in container %s by exec", sleep.ErrInUse, len(x.execs), x.id)
	}
	return nil
}

// hush makes the shim answer for the pod from now on, and keep the coming ends of its processes quiet. If that fails,
// rise undoes it.
func (z *sleeper) hush(ctx context.Context, wakeToEnd bool) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	z.toEnd.Store(wakeToEnd)
	if err := z.shut(ctx, true); err != nil {
		return err
	}
	return z.each(ctx, func(_ context.Context, x *resident) error {
		if err := z.fit(x); err != nil { // something may have come since ready
			return err
		}
		quiet.expect(x.id)
		return nil
	})
}

// settle waits until the ends of the containers' processes were noticed, and kept quiet.
func (z *sleeper) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	time.AfterFunc(dozeAfter, z.doze)
	return z.each(ctx, func(ctx context.Context, x *resident) error { return quiet.settled(ctx, x.id) })
}

// rise lets requests through to the pod again, after a wake or a fall that has failed.
func (z *sleeper) rise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quietLimit)
	defer cancel()
	for _, x := range z.running {
		quiet.forget(x.id)
	}
	z.warn(z.shut(ctx, false), "let requests through")
	z.warn(z.each(ctx, z.resize), "change the resources of its containers")
}

// resize makes the change of a container's resources that came in its sleep, or before it.
func (z *sleeper) resize(ctx context.Context, x *resident) error {
	z.mu.Lock()
	resized, woken := x.resized, x.woken
	z.mu.Unlock()
	if resized == nil || !woken {
		return nil
	}
	if _, err := z.TaskServiceExt.Update(ctx, resized); err != nil {
		return fmt.Errorf("container %s: %w", x.id, err)
	}
	return nil
}

// doom reports that all containers have ended in their sleep, or were not woken.
func (z *sleeper) doom(ctx context.Context, status int) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	err := z.each(ctx, func(ctx context.Context, x *resident) error { return z.doomed(ctx, x, status) })
	return errors.Join(err, z.shut(context.WithoutCancel(ctx), false))
}

// doomed reports that a container has ended. Until gVisor's shim knows that, it must not be asked: it would ask runsc.
func (z *sleeper) doomed(ctx context.Context, x *resident, status int) error {
	if r := x.revival.Load(); r != nil { // it keeps runsc's lock of the container
		r.Cancel()
	}
	quiet.forget(x.id)
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: x.id, Status: status}
	known := make(chan error, 1)
	go func() {
		_, err := z.TaskServiceExt.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: x.id})
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
	z.mu.Lock()
	defer z.mu.Unlock()
	x.dead = true
	return nil
}

// runtimeOf returns runsc as it is run for a container.
func (z *sleeper) runtimeOf(ctx context.Context, x *resident) (*runsccmd.Runsc, error) {
	runtime, err := z.c.runtime(ctx)
	if err == nil {
		runtime.Log = filepath.Join(x.bundle, "log.json")
	}
	return runtime, err
}

// remake begins to create a container of the pod again, other than the sandbox container. It returns before that is
// done.
func (z *sleeper) remake(ctx context.Context, x *resident) error {
	runtime, err := z.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	consoles.again(x.id)
	r, err := revive.Begin(runtime, x.id, x.bundle, x.streams, wakeLimit)
	if err != nil {
		return fmt.Errorf("create container %s: %w", x.id, err)
	}
	x.revival.Store(r)
	return nil
}

// restart restores a container that is being created again. The last container's restart loads the sandbox.
func (z *sleeper) restart(ctx context.Context, x *resident) error {
	runtime, err := z.runtimeOf(ctx, x)
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

// attend notes the process of a container that was woken, and reports its exit when it comes.
func (z *sleeper) attend(ctx context.Context, x *resident) error {
	runtime, err := z.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	pid, err := bundle{x.id, x.bundle}.process()
	if err != nil {
		return err
	}
	z.mu.Lock()
	x.woken = true
	if x.id == z.c.bundle.id {
		z.pid = uint32(pid)
	}
	z.mu.Unlock()
	quiet.forget(x.id)
	go func() { // ends with the sandbox
		status, err := runtime.Wait(context.Background(), x.id)
		if err != nil {
			log.L.WithError(err).Infof("wait for container %s", x.id)
			status = internalError
		}
		proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: x.id, Status: status}
	}()
	return nil
}

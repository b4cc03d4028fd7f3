package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// quietLimit bounds the wait for the end of a killed sandbox.
const quietLimit = 10 * time.Second

// step does one container's part in falling asleep or waking.
func (z *sleeper) step(ctx context.Context, x *resident, o sleep.Order) error {
	ctx = namespaces.WithNamespace(ctx, z.namespace)
	switch o.Verb {
	case sleep.Ready:
		return z.ready(ctx, x)
	case sleep.Hush:
		z.toEnd.Store(o.WakeToEnd)
		return z.hush(ctx, x, o.Round)
	case sleep.Settle:
		ctx, cancel := context.WithTimeout(ctx, quietLimit)
		defer cancel()
		time.AfterFunc(dozeAfter, z.doze)
		return quiet.settled(ctx, x.id)
	case sleep.Remake:
		z.dozing.stir()
		return z.remake(ctx, x)
	case sleep.Rouse:
		return z.restart(ctx, x)
	case sleep.Up:
		return z.up(ctx, x, o.Round)
	case sleep.Doom:
		return z.doomed(ctx, x, o.Status)
	}
	return fmt.Errorf("%w: %s is not for container %s", sleep.ErrInvalid, o.Verb, x.id)
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
	state, err := z.c.stateFor(ctx, forStatus, x.id)
	if err != nil {
		return fmt.Errorf("%w: container %s: its state: %w", sleep.ErrUnfit, x.id, err)
	}
	if state.Status != tasktypes.Status_RUNNING {
		return fmt.Errorf("%w: container %s is %s", sleep.ErrUnfit, x.id, strings.ToLower(state.Status.String()))
	}
	pids, err := z.TaskServiceExt.Pids(ctx, &task.PidsRequest{ID: x.id})
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
	case x.told: // its end may be about to come, and would be taken for that of the sandbox
		return fmt.Errorf("%w: container %s was told to end", sleep.ErrUnfit, x.id)
	case len(x.execs) > 0:
		return fmt.Errorf("%w: %d processes were started in container %s by exec", sleep.ErrInUse, len(x.execs), x.id)
	}
	return nil
}

// hush makes the shim answer for a container from now on, and keep the coming end of its process quiet. It comes on a
// connection of its own, and may be late: after up for the same round it has no effect.
func (z *sleeper) hush(ctx context.Context, x *resident, round uint64) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	if err := z.shut(ctx, true); err != nil {
		return err
	}
	err := z.fit(x) // something may have come since ready
	if err == nil {
		err = x.rounds.hush(round, func() { quiet.expect(x.id) })
	}
	if err != nil {
		return errors.Join(err, z.shut(ctx, false))
	}
	return nil
}

// up lets requests through to a container again. It undoes hush, too. One that is late, for an earlier round than hush,
// has no effect.
func (z *sleeper) up(ctx context.Context, x *resident, round uint64) error {
	if !x.rounds.up(round) {
		return nil
	}
	quiet.forget(x.id)
	if err := z.shut(ctx, false); err != nil {
		return err
	}
	z.mu.Lock()
	resized := x.resized
	z.mu.Unlock()
	if resized == nil || x.pid == 0 {
		return nil
	}
	_, err := z.TaskServiceExt.Update(ctx, resized)
	z.warn(err, "change the resources of container "+x.id)
	return nil
}

// doomed reports that a container has ended in its sleep, or was not woken.
func (z *sleeper) doomed(ctx context.Context, x *resident, status int) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	z.mu.Lock()
	if x.revival != nil { // it keeps runsc's lock of the container
		x.revival.cancel()
	}
	z.mu.Unlock()
	quiet.forget(x.id)
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: x.id, Status: status}
	// Until gVisor's shim knows that the container has ended, it must not be asked: it would ask runsc.
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
	x.dead = true
	z.mu.Unlock()
	return z.shut(ctx, false)
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
	r, err := revive(runtime, x.id, x.bundle, x.streams)
	if err != nil {
		return fmt.Errorf("create container %s: %w", x.id, err)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	x.revival = r
	return nil
}

// restart restores a container that is being created again. The last container's restart loads the sandbox.
func (z *sleeper) restart(ctx context.Context, x *resident) error {
	runtime, err := z.runtimeOf(ctx, x)
	if err != nil {
		return err
	}
	z.mu.Lock()
	r := x.revival
	x.revival = nil
	z.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%w: container %s is not being created", sleep.ErrInvalid, x.id)
	}
	if err := r.goOn(ctx); err != nil {
		return fmt.Errorf("restore container %s: %w", x.id, whyRunsc(err, runtime.Log))
	}
	return z.attend(x, runtime)
}

// attend notes the process of a container that was restored, and reports its exit when it comes.
func (z *sleeper) attend(x *resident, runtime *runsccmd.Runsc) error {
	data, err := os.ReadFile(filepath.Join(x.bundle, "init.pid"))
	if err != nil {
		return fmt.Errorf("process of container %s: %w", x.id, err)
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return fmt.Errorf("process of container %s: %w", x.id, err)
	}
	z.mu.Lock()
	x.pid = uint32(pid)
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

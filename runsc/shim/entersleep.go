package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	"golang.org/x/sys/unix"
)

// entering is how a pod is put to sleep.
type entering struct{ *podSleep }

// enterLimit bounds the time from the order to enter sleep until the sandbox is gone.
const enterLimit = 30 * time.Second

// takeSaved takes the turn once no save is under way: a sandbox that is being saved cannot run on.
func (z *entering) takeSaved(ctx context.Context) (give func(), err error) {
	select {
	case z.s.saving <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("it is being saved: %w", context.Cause(ctx))
	}
	turn, err := z.state.Take(ctx)
	if err != nil {
		<-z.s.saving
		return nil, err
	}
	return func() { turn(); <-z.s.saving }, nil
}

// prepare prepares the pod to sleep, and watches from now on whether packets come for it. First, the probes end that
// run in it by exec.
func (z *entering) prepare(ctx context.Context, o sleep.Order) (err error) {
	give, err := z.state.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	switch {
	case z.state.Answered():
		return fmt.Errorf("%w: it sleeps already", sleep.ErrUnfit)
	case z.network == nil:
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, sleep.ErrNoNetwork)
	}
	z.endWatch()
	if err := z.state.Move(ctx, sleepstate.Arm); err != nil {
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, err)
	}
	defer func() {
		if err != nil {
			z.disarm(ctx)
		}
	}()
	if z.running, err = z.named(append(slices.Clone(o.Containers), z.c.bundle.id)); err != nil {
		return err
	}
	z.sleepsOn.Store(false)
	z.probing.begin(ctx, func() bool { return onlyProbes(&z.mu, z.running) })
	if err := z.each(ctx, z.checkSleepable); err != nil {
		return err
	}
	waker, err := sleep.NewWaker(z.network, kubelet.NewProber(&z.c.process.kubelet), o.Ignored)
	if err != nil {
		return err
	}
	w := &watch{waker, make(chan struct{})}
	z.watch.Store(w)
	if err = w.Quiet(ctx, quietTime); err == nil {
		err = z.s.sentry.Settled(ctx)
	}
	if err == nil && o.AnswerWithin > 0 {
		err = z.s.sentry.Answered(ctx, o.AnswerWithin, o.Ignored)
	}
	if err == nil {
		go z.awaitTraffic(context.WithoutCancel(ctx), w)
	}
	return err
}

// awaitTraffic has the sandbox run on when a packet comes, and undoes prepare after a while.
func (z *entering) awaitTraffic(ctx context.Context, w *watch) {
	limit := time.NewTimer(watchLimit)
	defer limit.Stop()
	for traffic := w.Traffic(); ; {
		select {
		case <-traffic:
			traffic = nil // once
			z.runOn(ctx)
		case <-limit.C:
			z.expire(ctx, w)
			return
		case <-w.ended:
			return
		}
	}
}

// pausing is called when the sandbox is about to be paused for a lease, and paused then. A packet may have come before.
func (z *entering) pausing(ctx context.Context) (paused func()) {
	w := z.watch.Load()
	if w == nil {
		return func() {}
	}
	w.Pause()
	return func() { go z.runOn(context.WithoutCancel(ctx)) }
}

// runOn ends the pause of a sandbox that is to fall asleep and for which a packet has come, so that it can answer. It
// waits for the end of a save that is under way, and no longer: not until the snapshot is safe. Enter fails then.
func (z *entering) runOn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, runOnLimit)
	defer cancel()
	give, err := z.takeSaved(ctx)
	if err != nil {
		return // the lease runs out
	}
	defer give()
	if w := z.watch.Load(); w != nil && w.Came() && z.state.Now() == sleepstate.Armed {
		z.warn(z.s.lease.Break(ctx), "have it run on, since a packet came")
		z.warn(w.Repeat(), "repeat packets")
	}
}

// runOnLimit bounds how long a sandbox waits to run on. A save that takes longer is given up by the agent.
const runOnLimit = 5 * time.Minute

// quietTime is how long no packet may come before the sandbox is paused. A request that came just before the pod was
// watched would be saved unanswered, and its client need not send anything that wakes the pod. Within this time it is
// answered, and the client acknowledges that.
const quietTime = 100 * time.Millisecond

// watchLimit bounds how long packets are watched for a pod that does not fall asleep: the agent may have died.
const watchLimit = 15 * time.Minute

// expire undoes prepare if the pod has not fallen asleep.
func (z *entering) expire(ctx context.Context, w *watch) {
	give, err := z.state.Take(ctx)
	if err != nil {
		return
	}
	defer give()
	if z.watch.Load() == w && z.state.Now() == sleepstate.Armed {
		z.stayAwake(ctx)
	}
}

// cancel undoes prepare. A sandbox that is still paused runs on before that: the agent may have failed to see to it, as
// containerd was away.
func (z *entering) cancel(ctx context.Context) error {
	give, err := z.takeSaved(ctx)
	if err != nil {
		return err
	}
	defer give()
	if z.state.Answered() {
		return nil
	}
	if err := z.s.lease.Break(ctx); err != nil && !errors.Is(err, lease.ErrRanOut) { // ran out: it has ended
		return fmt.Errorf("have it run on: %w", err)
	}
	z.stayAwake(ctx)
	return nil
}

// stayAwake undoes prepare for a pod that runs. Packets may have come while it was saved that nobody has repeated yet.
func (z *entering) stayAwake(ctx context.Context) {
	if w := z.watch.Load(); w != nil {
		z.warn(w.Repeat(), "repeat packets")
	}
	z.disarm(ctx)
}

// disarm ends the watch of a pod that runs.
func (z *entering) disarm(ctx context.Context) {
	z.endWatch()
	z.move(context.WithoutCancel(ctx), sleepstate.Disarm)
}

// enter ends the sandbox and keeps the pod. Its snapshot is safe, and the sandbox has been paused since before that:
// the holder of the lease says so. If a packet has come for the pod, or anything else stands in the way, the sandbox
// stays. It runs on at once, except where it was not watched, or the lease is not held: then the holder sees to it.
// When the pod sleeps, enter calls asleep before anything can wake it.
func (z *entering) enter(ctx context.Context, o sleep.Order, asleep func(*watch)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enterLimit)
	defer cancel()
	give, err := z.state.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	w := z.watch.Load()
	if w == nil {
		return fmt.Errorf("%w: it was not asked to watch for packets", sleep.ErrUnfit)
	}
	if w.Came() { // the sandbox may run on already
		return sleep.ErrTraffic
	}
	renew := lease.Request{Verb: lease.Renew, Holder: o.Holder, For: 2 * enterLimit}
	if err := z.s.lease.Do(ctx, renew); err != nil {
		return err
	}
	if err := z.intercept(ctx, w, o); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enterLimit) // the time may be up: that may be why
		defer cancel()
		if z.state.Answered() {
			z.release(ctx, sleepstate.Abort)
		}
		err = errors.Join(err, z.s.lease.Break(ctx))
		z.stayAwake(ctx)
		return err
	}
	z.image = o.Image
	z.terminate(ctx, w)
	asleep(w)
	return nil
}

// intercept does all that can fail before the sandbox ends: the shim answers for the pod, unless a packet comes before,
// or the pod has begun a connection since it was watched. Without an error, the sandbox's process is stopped.
func (z *entering) intercept(ctx context.Context, w *watch, o sleep.Order) error {
	if err := z.s.sentry.Settled(ctx); err != nil {
		return err
	}
	if err := z.answer(ctx, o.WakeToEnd); err != nil {
		return err
	}
	if err := z.network.Silence(); err != nil {
		return err
	}
	err := z.halt(ctx, w)
	if err == nil {
		z.since = time.Now()
		mark := sleep.Mark{Sandbox: z.c.bundle.id, UID: z.s.pod.uid, Since: z.since}
		err = mark.Write(o.Image)
	}
	if err != nil {
		err = errors.Join(err, z.c.bundle.signal(unix.SIGCONT), z.network.Unsilence())
	}
	return err
}

// answer makes the shim answer for the pod from now on, and keep the coming ends of its processes quiet. If that fails,
// release undoes it.
func (z *entering) answer(ctx context.Context, wakeToEnd bool) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	z.signalled.Store(wakeToEnd)
	if err := z.state.Move(ctx, sleepstate.Enter); err != nil {
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, err)
	}
	return z.each(ctx, func(_ context.Context, x *resident) error {
		if err := z.fit(x); err != nil { // something may have come since checkSleepable
			return err
		}
		z.c.process.suppressed.suppress(x.id)
		return nil
	})
}

// halt stops the sandbox's process, and then looks whether a packet has come before. The network of a paused sandbox
// still answers: it takes connections that the snapshot does not know, and that would be reset once the pod is awake.
func (z *entering) halt(ctx context.Context, w *watch) error {
	ctx, cancel := context.WithTimeout(ctx, haltLimit)
	defer cancel()
	if err := z.c.bundle.halt(ctx); err != nil {
		return err
	}
	if err := w.CatchUp(ctx); err != nil {
		return err
	}
	if w.Came() {
		return sleep.ErrTraffic
	}
	return nil
}

// haltLimit bounds how long a sandbox may take to stop.
const haltLimit = 5 * time.Second

// terminate ends the sandbox. There is no way back from here except a wake, so it goes on whatever fails.
func (z *entering) terminate(ctx context.Context, w *watch) {
	z.warn(z.c.bundle.kill(), "end it")
	z.move(ctx, sleepstate.Sleep)
	w.Answer()
	z.warn(z.s.lease.Free(ctx, func() error { return nil }), "release the lease of its pause")
	z.warn(z.awaitExits(ctx), "wait for its end")
	z.remove(ctx)
	slog.Info("the sandbox sleeps", "sandbox", z.c.bundle.id)
}

// awaitExits waits until the ends of the containers' processes were noticed, and kept quiet.
func (z *entering) awaitExits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	return z.each(ctx, func(ctx context.Context, x *resident) error { return z.c.process.suppressed.await(ctx, x.id) })
}

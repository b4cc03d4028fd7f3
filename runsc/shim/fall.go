package shim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// night is what the shim of the sandbox keeps for the sleep of its pod.
type night struct {
	network *sleep.Network              // nil: the pod has none of its own, and cannot sleep
	turn    chan struct{}               // holds one token while the pod falls asleep, wakes or ends
	watched atomic.Pointer[sleep.Waker] // waker, for those who have not taken the turn
	falling falling

	// The fields below are guarded by turn.
	waker     *sleep.Waker  // nil: nobody wants the pod to sleep
	unwatched chan struct{} // closed when waker is no longer
	running   []*resident   // the containers that run, the sandbox container last
	image     string        // the image path by which the pod is woken
	since     time.Time     // when it fell asleep
	failed    *failedWake   // its last wake, if that has failed and the agent has not prepared another
	over      chan struct{}

	wakes waking
}

// waking is a wake that is under way, which all who want it share.
type waking struct {
	mu   sync.Mutex
	done chan struct{} // closed at its end; nil: none is under way
	held string        // what it waits for before it begins; empty: for nothing
	err  error

	broken bool // it was ended because the pod is killed
}

// fallLimit bounds the time from the order to fall asleep until the sandbox is gone.
const fallLimit = 30 * time.Second

// recordNetwork notes how the pod's network is before runsc takes the addresses.
func (z *sleeper) recordNetwork() {
	if z.s.pod.network == "" {
		return
	}
	n, err := sleep.RecordNetwork(z.s.pod.network)
	if err != nil {
		log.L.WithError(err).Infof("the pod of sandbox %s cannot sleep", z.c.bundle.id)
		return
	}
	z.network = n
}

// take takes the turn.
func (z *sleeper) take(ctx context.Context) (give func(), err error) {
	select {
	case z.turn <- struct{}{}:
		return func() { <-z.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("it is going to sleep or waking: %w", context.Cause(ctx))
	}
}

// takeSaved is take once no save is under way: a sandbox that is being saved cannot run on.
func (z *sleeper) takeSaved(ctx context.Context) (give func(), err error) {
	select {
	case z.s.saving <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("it is being saved: %w", context.Cause(ctx))
	}
	turn, err := z.take(ctx)
	if err != nil {
		<-z.s.saving
		return nil, err
	}
	return func() { turn(); <-z.s.saving }, nil
}

// watch prepares the pod to sleep, and watches from now on whether packets come for it. First, the probes end that run
// in it by exec.
func (z *sleeper) watch(ctx context.Context, o sleep.Order) (err error) {
	give, err := z.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	switch {
	case z.asleep.Load():
		return fmt.Errorf("%w: it sleeps already", sleep.ErrUnfit)
	case z.network == nil:
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, sleep.ErrNoNetwork)
	}
	z.unwatch()
	if z.running, err = z.residents(append(slices.Clone(o.Containers), z.c.bundle.id)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			z.unwatch()
		}
	}()
	z.falling.begin(ctx, func() bool { return onlyProbes(&z.mu, z.running) })
	if err := z.each(ctx, z.ready); err != nil {
		return err
	}
	if z.waker, err = sleep.NewWaker(z.network, kubelet.NewProber(), o.Ignored); err != nil {
		return err
	}
	z.unwatched = make(chan struct{})
	z.watched.Store(z.waker)
	if err := z.waker.Quiet(ctx, quietTime); err != nil {
		return err
	}
	if err := z.s.settled(ctx); err != nil {
		return err
	}
	go z.attendWatch(z.waker, z.unwatched)
	return nil
}

// attendWatch has the sandbox run on when a packet comes, and undoes watch after a while.
func (z *sleeper) attendWatch(w *sleep.Waker, unwatched <-chan struct{}) {
	limit := time.NewTimer(watchLimit)
	defer limit.Stop()
	for traffic := w.Traffic(); ; {
		select {
		case <-traffic:
			traffic = nil // once
			z.runOn()
		case <-limit.C:
			z.expire(w)
			return
		case <-unwatched:
			return
		}
	}
}

// pausing is called when the sandbox is about to be paused for a lease, and paused then. A packet may have come before.
func (z *sleeper) pausing() (paused func()) {
	w := z.watched.Load()
	if w == nil {
		return func() {}
	}
	w.Pause()
	return func() { go z.runOn() }
}

// runOn ends the pause of a sandbox that is to fall asleep and for which a packet has come, so that it can answer. It
// waits for the end of a save that is under way, and no longer: not until the snapshot is safe. Fall fails then.
func (z *sleeper) runOn() {
	ctx, cancel := context.WithTimeout(context.Background(), runOnLimit)
	defer cancel()
	give, err := z.takeSaved(ctx)
	if err != nil {
		return // the lease runs out
	}
	defer give()
	if z.waker != nil && z.waker.Came() && !z.asleep.Load() {
		z.warn(z.s.lease.Break(ctx), "have it run on, since a packet came")
		z.warn(z.waker.Repeat(), "repeat packets")
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

// expire undoes watch if the pod has not fallen asleep.
func (z *sleeper) expire(w *sleep.Waker) {
	give, err := z.take(context.Background())
	if err != nil {
		return
	}
	defer give()
	if z.waker == w && !z.asleep.Load() {
		z.forgo()
	}
}

// stay undoes watch. A sandbox that is still paused runs on before that: the agent may have failed to see to it, as
// containerd was away.
func (z *sleeper) stay(ctx context.Context) error {
	give, err := z.takeSaved(ctx)
	if err != nil {
		return err
	}
	defer give()
	if z.asleep.Load() {
		return nil
	}
	if err := z.s.lease.Break(ctx); err != nil && !errors.Is(err, lease.ErrRanOut) { // ran out: it has ended
		return fmt.Errorf("have it run on: %w", err)
	}
	z.forgo()
	return nil
}

// forgo undoes watch for a pod that stays awake. Packets may have come while it was saved that nobody has repeated yet.
func (z *sleeper) forgo() {
	if z.waker != nil {
		z.warn(z.waker.Repeat(), "repeat packets")
	}
	z.unwatch()
}

func (z *sleeper) unwatch() {
	z.falling.end()
	if z.waker != nil {
		z.warn(z.waker.Close(), "watch for packets")
		z.waker = nil
		z.watched.Store(nil)
		close(z.unwatched)
	}
}

// fall ends the sandbox and keeps the pod. Its snapshot is safe, and the sandbox has been paused since before that: the
// holder of the lease says so. If a packet has come for the pod, or anything else stands in the way, the sandbox stays.
// It runs on at once, except where it was not watched, or the lease is not held: then the holder sees to it.
func (z *sleeper) fall(ctx context.Context, o sleep.Order) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fallLimit)
	defer cancel()
	give, err := z.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if z.waker == nil {
		return fmt.Errorf("%w: it was not asked to watch for packets", sleep.ErrUnfit)
	}
	if z.waker.Came() { // the sandbox may run on already
		return sleep.ErrTraffic
	}
	renew := lease.Request{Verb: lease.Renew, Holder: o.Holder, For: 2 * fallLimit}
	if err := z.s.lease.Do(ctx, renew); err != nil {
		return err
	}
	if err := z.prepareFall(ctx, o); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fallLimit) // the time may be up: that may be why
		defer cancel()
		z.rise(ctx)
		err = errors.Join(err, z.s.lease.Break(ctx))
		z.forgo()
		return err
	}
	z.image, z.over = o.Image, make(chan struct{})
	z.depart(ctx)
	go z.sleepOn(z.waker, z.over)
	return nil
}

// prepareFall does all that can fail before the sandbox ends: the shim answers for the pod, unless
// a packet comes before that is done, or the pod has begun a connection since it was watched: while it is paused it
// begins no other. Without an error, the sandbox's process is stopped.
func (z *sleeper) prepareFall(ctx context.Context, o sleep.Order) error {
	if err := z.s.settled(ctx); err != nil {
		return err
	}
	if err := z.hush(ctx, o.WakeToEnd); err != nil {
		return err
	}
	if err := z.network.Silence(); err != nil {
		return err
	}
	err := z.halt(ctx)
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

// halt stops the sandbox's process, and then looks whether a packet has come before. The network of a paused sandbox
// still answers: it takes connections that the snapshot does not know, and that would be reset once the pod is awake.
func (z *sleeper) halt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, haltLimit)
	defer cancel()
	if err := z.c.bundle.halt(ctx); err != nil {
		return err
	}
	if err := z.waker.CatchUp(ctx); err != nil {
		return err
	}
	if z.waker.Came() {
		return sleep.ErrTraffic
	}
	return nil
}

// haltLimit bounds how long a sandbox may take to stop.
const haltLimit = 5 * time.Second

// depart ends the sandbox. There is no way back from here except a wake, so it goes on whatever fails.
func (z *sleeper) depart(ctx context.Context) {
	z.warn(z.c.bundle.kill(), "end it")
	z.waker.Answer()
	z.warn(z.s.lease.Free(ctx, func() error { return nil }), "release the lease of its pause")
	z.warn(z.settle(ctx), "wait for its end")
	z.remove(ctx)
	log.L.Infof("sandbox %s sleeps", z.c.bundle.id)
}

// remove removes what runsc keeps of the containers, the sandbox container last. Only then runsc can create them again.
func (z *sleeper) remove(ctx context.Context) {
	runtime, err := z.c.runtime(namespaces.WithNamespace(ctx, z.namespace))
	if err != nil {
		z.warn(err, "find runsc")
		return
	}
	remove := func(id string) {
		z.warn(runtime.Delete(ctx, id, &runsccmd.DeleteOpts{Force: true}), "remove container "+id)
	}
	var all sync.WaitGroup
	for _, x := range z.others() {
		all.Go(func() { remove(x.id) })
	}
	all.Wait()
	remove(z.c.bundle.id)
}

// Pauses between two attempts to wake a pod for a packet. Each is twice as long as the one before.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// sleepOn wakes the pod when a packet comes for it. If that fails, it tries again. It ends with the sleep.
func (z *sleeper) sleepOn(w *sleep.Waker, over <-chan struct{}) {
	select {
	case <-w.Traffic():
	case <-over:
		return
	}
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		err := z.rouse(context.Background(), "packet")
		if err == nil {
			return
		}
		z.warn(err, "wake it")
		select {
		case <-time.After(pause):
		case <-over:
			return
		}
	}
}

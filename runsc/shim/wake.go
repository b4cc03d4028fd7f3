package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// wakeLimit bounds the restore of a pod that wakes, from the agent's first answer on.
const wakeLimit = 2 * restoreLimit

// tellTime is how long before a caller's time limit wake gives up, so that the caller still hears what it waited for.
const tellTime = 300 * time.Millisecond

// unwoken is the exit status of containers that could not be woken.
const unwoken = internalError

// waking is how a pod wakes.
type waking struct {
	*podSleep
	shared   sharedWake
	reminder sleep.Reminder // that the pod sleeps, from before its wake; guarded by the turn of state
}

// sharedWake is a wake that is under way, which all who want it share. Its methods may be called concurrently.
type sharedWake struct {
	mu   sync.Mutex
	done chan struct{} // closed at its end; nil: none is under way
	held string        // what it waits for before it begins; empty: for nothing
	err  error

	broken bool // it was ended because the pod is killed
}

// wake wakes the pod and returns when it runs, or at once if it is awake. If it is falling asleep, it does not. The
// wake goes on if ctx ends.
func (z *waking) wake(ctx context.Context, cause string) error {
	if !z.state.Answered() {
		// In this order: a pod that falls asleep nevertheless has looked for what came once the shim answers for it.
		if w := z.watch.Load(); w != nil {
			w.Need()
		}
		if !z.state.Answered() {
			return nil
		}
	}
	lasting := context.WithoutCancel(ctx)
	done := z.shared.share(func() error { return z.runWake(lasting, cause) })
	if limit, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, limit.Add(-min(tellTime, time.Until(limit)/4)))
		defer cancel()
	}
	select {
	case <-done:
		return z.shared.failure()
	case <-ctx.Done():
		return fmt.Errorf("wait until sandbox %s is awake%s: %w", z.c.bundle.id, z.shared.waitsFor(), context.Cause(ctx))
	}
}

// waitsFor returns what the wake waits for before it begins, for an error; empty if it has begun.
func (w *sharedWake) waitsFor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == "" {
		return ""
	}
	return ", which waits " + w.held
}

// share runs f, unless it runs already, and returns a channel that is closed at its end.
func (w *sharedWake) share(f func() error) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		return w.done
	}
	done := make(chan struct{})
	w.done, w.broken = done, false
	go func() {
		err := f()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err, w.done = err, nil
		close(done)
	}()
	return done
}

// await waits until no wake is under way, for at most that time. It does not wait for one that has not begun.
func (w *sharedWake) await(ctx context.Context, most time.Duration) {
	w.mu.Lock()
	done, held := w.done, w.held
	w.mu.Unlock()
	if done == nil || held != "" {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(most):
	}
}

// breakOff kills the sandbox by kill if a wake has begun.
func (w *sharedWake) breakOff(kill func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil || w.held != "" {
		return nil
	}
	w.broken = true
	return kill()
}

// status is the exit status of the containers, after the wake has failed.
func (w *sharedWake) status() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return statusKilled
	}
	return unwoken
}

// failure returns why the last wake has failed, or nil.
func (w *sharedWake) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// failedWake is a wake that has failed before the sandbox ran. The pod sleeps on.
type failedWake struct {
	error
	cause string
	image string    // the image path that is of no use any more
	since time.Time // when the pod fell asleep
	ready bool      // its sandbox was created before
}

// runWake restores the sandbox if the pod sleeps. If that fails before the sandbox ran, the pod sleeps on, unless it
// can never be woken. Then it ends. Ctx is never canceled: others may wait for the wake.
func (z *waking) runWake(ctx context.Context, cause string) error {
	began := time.Now()
	give, err := z.takeAsleep(ctx)
	if err != nil || give == nil {
		return err
	}
	err = z.wakeNow(ctx, cause, began)
	give()
	if failed := (*failedWake)(nil); errors.As(err, &failed) {
		why, renewed := z.renew(ctx, failed)
		if failed.ready && renewed == nil { // it may have been for that sandbox alone
			z.warn(err, "wake it again")
			return z.runWake(ctx, cause)
		}
		if why != nil {
			err = why
		}
		err = errors.Join(err, renewed)
	}
	return err
}

// wakeNow is runWake with the turn taken. If the pod sleeps on, the error is a failedWake.
func (z *waking) wakeNow(ctx context.Context, cause string, began time.Time) error {
	within, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, z.namespace), wakeLimit)
	defer cancel()
	var stages stages
	ready := z.takeReady(within)
	delivered, ran, err := z.restoreSandbox(within, &stages)
	if err != nil {
		err = fmt.Errorf("wake sandbox %s, by %s: %w", z.c.bundle.id, cause, trimStack(err))
		if killed := z.c.bundle.kill(); killed != nil || ran || z.shared.status() == statusKilled {
			return errors.Join(err, killed, z.failWake(ctx, err, cause, ran))
		}
		z.warn(z.s.pod.remember(z.reminder), "note that it could not be woken")
		z.discard(ctx)
		z.failReadiness()
		z.move(within, sleepstate.Fail)
		z.failed = &failedWake{error: err, cause: cause, image: z.image, since: z.since, ready: ready != notReady}
		return z.failed
	}
	took := time.Since(began)
	slog.Info("the sandbox is awake", "sandbox", z.c.bundle.id, "cause", cause, "took", took, "ready", ready,
		"stages", stages.String(), "delivered", delivered.Sent, "dropped", delivered.Dropped)
	z.leave()
	go z.tellAgent(ctx, &localv1.ReportRestoreRequest{
		Request: filepath.Base(z.image), SandboxId: z.c.bundle.id, Annotations: z.s.pod.annotations,
		Woken: &localv1.Woken{
			Cause: cause, Took: durationpb.New(took), Delivered: int64(delivered.Sent), Dropped: int64(delivered.Dropped),
			Ready: ready != notReady,
		},
	})
	return nil
}

// failReadiness has the pod's readiness probes fail: it cannot answer, and is to get no requests. Its liveness probes
// succeed, or the kubelet would end it.
func (z *waking) failReadiness() {
	z.sleepsOn.Store(true)
	if w := z.watch.Load(); w != nil {
		w.FailReadiness(z.s.readiness)
	}
}

// discard ends what is left of a wake that has failed before the sandbox ran. The pod's addresses stay: its network is
// silent.
func (z *waking) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	z.warn(z.dropRestores(ctx), "end the restore of its containers")
	z.ready = notReady
	z.warn(sleep.UnmarkReady(z.image), "mark that it is not ready")
	z.remove(ctx)
}

// renew has the agent prepare another wake after one has failed, and returns why that has, if the agent knows. If the
// agent knows that none can succeed, the pod ends. After an error the pod sleeps on, or has ended.
func (z *waking) renew(ctx context.Context, failed *failedWake) (why, err error) {
	next, refused := z.c.agent.retryWake(ctx, &localv1.RetryWakeRequest{
		Request: filepath.Base(failed.image), SandboxId: z.c.bundle.id, Error: failed.Error(),
		Annotations: z.s.pod.annotations, Since: timestamppb.New(failed.since),
	})
	give, err := z.state.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	switch {
	case z.failed != failed: // it has ended meanwhile
		if refused == nil {
			z.warn(sleep.Unmark(next.GetImagePath()), "mark that it has ended")
			go z.c.agent.giveUp(ctx, z.c.bundle.id, "the pod ended in its sleep")
		}
	case refused == nil:
		z.image, z.failed = next.GetImagePath(), nil
		return errors.New(next.GetReason()), nil
	case status.Code(refused) == localv1.CodeNever:
		return nil, errors.Join(refused, z.failWake(ctx, failed, failed.cause, false))
	}
	return nil, refused
}

// takeAsleep takes the turn if the pod sleeps and the agent admits its wake, which begins then. It waits for that as
// long as the pod sleeps. If the pod is awake, give is nil.
func (z *waking) takeAsleep(ctx context.Context) (give func(), err error) {
	defer z.shared.hold("")
	admitted := "" // the image path of the sleep whose end the agent has admitted
	for began := time.Now(); ; {
		if give, err = z.state.Take(ctx); err != nil {
			return nil, err
		}
		if !z.state.Answered() {
			give()
			return nil, nil
		}
		failed, image, over := z.failed, z.image, z.state.Over()
		if failed == nil && admitted == image {
			z.takeReady(ctx)                                   // the end of its sandbox means nothing before this
			z.reminder, _ = z.s.pod.reminder()                 // the agent removes it when the wake begins
			if err := sleep.ReleaseMemory(image); err != nil { // it would wait for it for ever
				give()
				return nil, err
			}
			z.move(ctx, sleepstate.Wake)
			return give, nil
		}
		z.move(ctx, sleepstate.Ask)
		give()
		select {
		case <-over:
			return nil, fmt.Errorf("sandbox %s: %w", z.c.bundle.id, errEnding)
		default:
		}
		if failed != nil {
			if _, err := z.renew(ctx, failed); err != nil {
				z.holdFor(over, retryFirst, "for the agent: "+err.Error())
			}
		} else if z.admitted(ctx, image, over, time.Since(began)) {
			admitted = image
		}
	}
}

// errEnding is the error for a pod that is not woken because it ends.
var errEnding = errors.New("the pod ends")

// restoreSandbox restores the sandbox in its network namespace, under its old ids and with its old addresses, and
// delivers the packets that were held. Ran says that the sandbox runs, or has run. It has its kernel then, and can be
// asked; its memory is loaded in the background. If that fails, it ends as any restored sandbox does.
func (z *waking) restoreSandbox(ctx context.Context, t *stages) (d sleep.Delivered, ran bool, err error) {
	runtime, err := z.c.runtime(ctx)
	if err != nil {
		return d, false, err
	}
	t.began()
	if err := z.network.PutBack(); err != nil { // runsc takes the addresses when it restores
		return d, false, err
	}
	t.ended("addresses put back")
	if err := z.c.bundle.noteImage(z.image); err != nil {
		return d, false, err
	}
	z.s.liftCPULimit(z.image)
	giveUp := z.s.headroom.ToRestore()
	if d, err = z.recreateAll(ctx, runtime, t); err != nil {
		giveUp()
		return d, false, err
	}
	z.s.headroom.PutBackRestored()
	if err := z.each(ctx, z.watchExit); err != nil {
		return d, true, err
	}
	z.release(ctx, sleepstate.Woke)
	return d, true, nil
}

// stages are the stages of a wake and how long each took.
type stages struct {
	at    time.Time
	texts []string
}

// began begins the first stage.
func (t *stages) began() { t.at = time.Now() }

// ended ends a stage and begins the next.
func (t *stages) ended(stage string) {
	now := time.Now()
	t.texts = append(t.texts, fmt.Sprintf("%s: %v", stage, now.Sub(t.at).Round(time.Millisecond)))
	t.at = now
}

// String returns the stages in their order.
func (t *stages) String() string { return strings.Join(t.texts, "; ") }

// recreateAll creates the containers again and restores them, and delivers the packets that were held. The others are
// created while the sandbox is, and restored once it waits for them. What runsc does after that, no packet need wait
// for.
func (z *waking) recreateAll(ctx context.Context, runtime *runsccmd.Runsc, t *stages) (d sleep.Delivered, err error) {
	if z.ready == kernelLoaded {
		return z.restoreOthers(ctx, t)
	}
	var g errgroup.Group // without a context: a runsc that is killed while it creates a sandbox leaves orphans
	var failed error     // once over is closed
	over := make(chan struct{})
	g.Go(func() error {
		defer close(over)
		if err := revive.Sandbox(ctx, runtime, z.c.bundle.id, z.c.bundle.dir, z.image, false); err != nil {
			failed = fmt.Errorf("restore it: %w", whyRunsc(err, runtime.Log))
		}
		return failed
	})
	g.Go(func() error {
		state := revive.StateOf(runtime.Root, z.c.bundle.id)
		if z.ready == notReady && !revive.Await(state.Begun, over) && failed != nil {
			return nil
		}
		if err := z.eachOther(ctx, z.recreate); err != nil {
			// Those that were begun end: as long as they wait, so does the runsc of the sandbox.
			z.warn(z.eachOther(ctx, z.restoreContainer), "restore the containers that were begun")
			return err
		}
		if !revive.Await(state.Waits, over) && failed != nil {
			return nil
		}
		t.ended("sandbox created")
		var err error
		d, err = z.restoreOthers(ctx, t)
		return err
	})
	err = g.Wait()
	if failed != nil { // it is why a container could not be created either
		err = failed
	}
	return d, err
}

// restoreOthers restores the containers other than the sandbox container, and delivers the packets that were held.
func (z *waking) restoreOthers(ctx context.Context, t *stages) (d sleep.Delivered, err error) {
	if err := z.eachOther(ctx, z.restoreContainer); err != nil {
		return d, err
	}
	t.ended("restored")
	d, err = z.watch.Load().Deliver()
	z.warn(err, "deliver packets")
	return d, nil
}

// failWake ends a pod that could not be woken, and tells the agent why. It does that first, so that the agent knows it
// when the pod is made anew. If no agent hears it in time, the next one goes by the reminder alone.
func (z *waking) failWake(ctx context.Context, err error, cause string, ran bool) error {
	slog.Error("the sandbox could not be woken, and ends", "sandbox", z.c.bundle.id, "error", err)
	within, cancel := context.WithTimeout(ctx, enterLimit)
	defer cancel()
	report := &localv1.ReportRestoreRequest{
		Request: filepath.Base(z.image), SandboxId: z.c.bundle.id, Annotations: z.s.pod.annotations, Error: err.Error(),
	}
	if !ran {
		report.Woken = &localv1.Woken{Cause: cause}
	}
	z.tellAgent(ctx, report)
	failed := z.exit(within, z.shared.status())
	z.leave()
	return failed
}

func (z *waking) tellAgent(ctx context.Context, r *localv1.ReportRestoreRequest) {
	z.warn(z.c.agent.report(ctx, r), "tell the agent how the wake went")
}

// Pauses between two attempts to wake a pod for a packet. Each is twice as long as the one before.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// awaitTraffic wakes the pod when a packet comes for it. If that fails, it tries again. It ends with the sleep.
func (z *waking) awaitTraffic(w *watch, over <-chan struct{}) {
	select {
	case <-w.Traffic():
	case <-over:
		return
	}
	ctx := context.Background() // the order to sleep has long been carried out
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		err := z.wake(ctx, "packet")
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

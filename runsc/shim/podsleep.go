package shim

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/runsc"
	"diapause.dev/runsc/shim/lowpower"
	"diapause.dev/runsc/shim/sleepstate"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// podSleep is what a shim keeps for the sleep of its pod. How the pod is put to sleep is in entersleep.go, how it wakes
// in wake.go, and how it ends without waking in exitasleep.go. All three move the same state.
type podSleep struct {
	steps
	namespace string                // of containerd
	lowPower  *lowpower.Mode        // of this process, while the pod sleeps
	probing   probing               // probes by exec that are answered for a pod that is to sleep
	damaged   atomic.Bool           // the agent has said that its snapshot cannot be read
	sleepsOn  atomic.Bool           // a wake has failed, and it sleeps on: its readiness probes fail
	signalled atomic.Bool           // while it sleeps: a signal that tells a container to end wakes the pod
	watch     atomic.Pointer[watch] // of its packets, from Armed to the end of the sleep; stored with the turn
	network   *sleep.Network        // set before the sandbox starts; nil: the pod has none of its own, and cannot sleep

	// The fields below are guarded by the turn of state.
	ready  readiness   // see ready.go
	image  string      // the image path by which the pod is woken
	since  time.Time   // when it fell asleep
	failed *failedWake // its last wake, if that has failed and the agent has not prepared another
}

// watch holds the packets that come for the pod.
type watch struct {
	*sleep.Waker
	ended chan struct{} // closed when the watch ends
}

func newPodSleep(ctx context.Context, next extension.TaskServiceExt, c *containers, s *sandbox) *podSleep {
	p := &podSleep{steps: steps{next: next, c: c, s: s, residents: newResidents()}}
	p.namespace, _ = namespaces.Namespace(ctx)
	p.state = sleepstate.New(p.moved)
	p.lowPower = lowpower.New(func() bool {
		now := p.state.Now()
		return now == sleepstate.Asleep || now == sleepstate.WakePending
	}, &c.process.connected)
	return p
}

// moved is called after each change of the state.
func (p *podSleep) moved(from, to sleepstate.State) {
	slog.Debug("the state of the pod's sleep has changed", "sandbox", p.c.bundle.id, "from", from, "to", to)
	switch to {
	case sleepstate.Asleep:
		time.AfterFunc(lowpower.After, p.lowPower.Enter)
	case sleepstate.WakePending:
	default:
		p.lowPower.Leave()
	}
}

// move moves the pod where nothing can be done about an error: the state allows it, and no request takes so long.
func (p *podSleep) move(ctx context.Context, e sleepstate.Event) {
	p.warn(p.state.Move(ctx, e), "note that its sleep changes")
}

// recordNetwork notes how the pod's network is before runsc takes the addresses.
func (p *podSleep) recordNetwork() {
	if p.s.pod.network == "" {
		return
	}
	n, err := sleep.RecordNetwork(p.s.pod.network)
	if err != nil {
		slog.Info("the pod cannot sleep", "sandbox", p.c.bundle.id, "error", err)
		return
	}
	p.network = n
}

// endWatch ends the watch of the pod's packets.
func (p *podSleep) endWatch() {
	p.probing.end()
	if w := p.watch.Swap(nil); w != nil {
		p.warn(w.Close(), "watch for packets")
		close(w.ended)
	}
}

// release lets requests through to the pod again: it has woken, or could not be put to sleep.
func (p *podSleep) release(ctx context.Context, e sleepstate.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quietLimit)
	defer cancel()
	for _, x := range p.running {
		p.c.process.suppressed.forget(x.id)
	}
	p.move(ctx, e)
	p.warn(p.each(ctx, p.resize), "change the resources of its containers")
}

// leave ends what there is only while the pod sleeps. Its sleep is over.
func (p *podSleep) leave() {
	p.endWatch()
	p.warn(p.network.Unsilence(), "let the kernel speak")
	p.ready = notReady
	p.warn(errors.Join(sleep.UnmarkReady(p.image), sleep.Unmark(p.image)), "mark that it is awake")
	p.s.ports.holdPaused(nil)
	p.failed = nil
}

// exit reports that all containers have ended with a status: in their sleep, or because they were not woken.
func (p *podSleep) exit(ctx context.Context, status int) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	err := p.each(ctx, func(ctx context.Context, x *resident) error { return p.reportExit(ctx, x, status) })
	return errors.Join(err, p.state.Move(context.WithoutCancel(ctx), sleepstate.Exit))
}

// remove removes what runsc keeps of the containers, the sandbox container last. Only then runsc can create them again.
func (p *podSleep) remove(ctx context.Context) {
	runtime, err := p.c.runtime(namespaces.WithNamespace(ctx, p.namespace))
	if err != nil {
		p.warn(err, "find runsc")
		return
	}
	p.warn(runsc.RemoveTorn(runtime.Root, p.c.bundle.id), "remove what a killed runsc has left")
	force := &runsccmd.DeleteOpts{Force: true}
	var all sync.WaitGroup
	for _, x := range p.others() {
		all.Go(func() {
			p.warn(runtime.Delete(ctx, x.id, force), "remove container "+x.id)
			p.warn(x.removeFilestore(p.c.bundle.id), "remove the file of container "+x.id)
		})
	}
	all.Wait()
	p.warn(runtime.Delete(ctx, p.c.bundle.id, force), "remove container "+p.c.bundle.id)
}

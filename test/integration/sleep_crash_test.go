package integration

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fallSteps are the stages of falling asleep at which something is ended.
var fallSteps = []string{"prepare", "capture", "spool", "fall asleep"}

// duringSleep puts a pod to sleep, calls do once when that comes to a stage, and returns the error. While packets come
// for the pod before that stage, it begins anew (see trySleep).
func (n *node) duringSleep(stage string, p *bed.Pod, do func()) (err error) {
	n.Helper()
	client, what := n.client(), "sleep of "+p.Name
	n.eventually(what+" comes to stage "+stage, func() error {
		stream, failed := client.Sleep(n.ctx, &localv1.SleepRequest{Target: p.ID})
		if failed != nil {
			n.Fatal(failed)
		}
		reached := false
		if reached, err = atStage(n, what, stream.Recv, stage, do); reached {
			return nil
		}
		if status.Code(err) != codes.Aborted {
			n.Fatalf("%s did not come to stage %s: %v", what, stage, err)
		}
		return err
	})
	return err
}

// TestSleepAgentKilledFalling kills the agent at every step of a pod's falling asleep. The pod runs on, or sleeps and
// is woken by the next packet, and can be put to sleep by the next agent.
func TestSleepAgentKilledFalling(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("falling", "--mib", "64")
	before := n.serving(p)
	for _, stage := range fallSteps {
		if err := n.duringSleep(stage, p, n.agent.Kill); err == nil {
			t.Logf("killed at %s: the pod slept already", stage)
		}
		n.startAgent(at.flags()...)
		n.alive(p, before)
		n.settled(at)
		n.asleep(p)
		n.alive(p, before)
	}
	n.logsOn(p)
}

// TestSleepContainerdKilledFalling does the same with containerd.
func TestSleepContainerdKilledFalling(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("falling", "--mib", "64")
	before := n.serving(p)
	for _, stage := range fallSteps {
		err := n.duringSleep(stage, p, func() {
			n.bed.Containerd.Kill()
			if err := n.bed.Containerd.Start(n.ctx); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("containerd was killed at %s: %v", stage, err)
		n.alive(p, before)
		n.settled(at)
		n.asleep(p)
		n.alive(p, before)
	}
	n.logsOn(p)
}

// wakesInPart sends a packet to a pod that sleeps, and calls do once its sandbox is being restored. It returns what
// became of the request, once do has returned.
func (n *node) wakesInPart(p *bed.Pod, do func()) (answered <-chan error) {
	n.Helper()
	done := n.asks(p)
	n.eventually("the sandbox is being restored", func() error {
		if len(done) > 0 {
			return nil // it is already
		}
		for _, line := range processesOf(n.T, p.ID) {
			if strings.Contains(line, " restore ") {
				return nil
			}
		}
		return errors.New("nothing restores it")
	})
	do()
	return done
}

// TestSleepAgentKilledWaking kills the agent at several instants of a pod's wake. Once there is another one the pod
// wakes, and whoever asked it is answered.
func TestSleepAgentKilledWaking(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("waking", "--mib", "64")
	before := n.serving(p)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
		n.asleep(p)
		answered := n.wakesInPart(p, func() {
			time.Sleep(after)
			n.agent.Kill()
		})
		n.startAgent(at.flags()...)
		if err := <-answered; err != nil {
			t.Errorf("the agent was killed after %v: %v", after, err)
		}
		n.alive(p, before)
		n.settled(at)
	}
}

// TestSleepContainerdKilledWaking kills containerd at several instants of a pod's wake, and starts it again. The pod
// wakes, and containerd finds it running.
func TestSleepContainerdKilledWaking(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("waking", "--mib", "64")
	before := n.serving(p)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
		n.asleep(p)
		answered := n.wakesInPart(p, func() {
			time.Sleep(after)
			n.bed.Containerd.Kill()
			if err := n.bed.Containerd.Start(n.ctx); err != nil {
				t.Fatal(err)
			}
		})
		if err := <-answered; err != nil {
			t.Errorf("containerd was killed after %v: %v", after, err)
		}
		n.alive(p, before)
		n.logsOn(p)
	}
	out, code, err := n.bed.Exec(n.ctx, p.Container("log"), "echo", "here")
	if err != nil || code != 0 || out != "here\n" {
		t.Errorf("exec: %q, %d, %v", out, code, err)
	}
}

// TestSleepShimsKilled kills the shim of a pod that sleeps: the sandbox and all containers have ended for containerd.
func TestSleepShimsKilled(t *testing.T) {
	n := start(t)
	p := n.sleeper("shimless", "--mib", "8")
	n.asleep(p)
	n.signal(n.shimOf(p.ID), syscall.SIGKILL)
	n.eventually("containerd knows that the sandbox has ended", func() error {
		pod, err := n.containerd().Get(n.ctx, p.ID)
		if err == nil && pod.Ready {
			err = errors.New("it is ready")
		}
		return err
	})
	for _, name := range []string{"app", "log"} {
		n.endedWith(p, name, 255) // containerd's status for what it does not know
	}
	n.removed(p)
}

// removed removes a pod, and checks that nothing of it is left.
func (n *node) removed(p *bed.Pod) {
	n.Helper()
	if err := n.bed.RemovePod(n.ctx, p.ID); err != nil {
		n.Error(err)
	}
	n.nothingLeft(p)
}

// nothingLeft waits until no process of a pod is left. A sidecar looks for its sandbox once a second.
func (n *node) nothingLeft(p *bed.Pod) {
	n.Helper()
	n.eventually("nothing is left of "+p.Name, func() error {
		if left := processesOf(n.T, p.ID); len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
}

// TestSleepContainerKilled kills a container right after its pod was woken, as its liveness probe may have it. It
// ends, and the container that the kubelet then makes in the same sandbox runs.
func TestSleepContainerKilled(t *testing.T) {
	n := start(t)
	spec := serving8("probed")
	spec.Containers = append(spec.Containers, logging)
	p := n.live(spec)
	for range 3 {
		n.asleep(p.pod)
		n.ask(impatient, p.pod)
		if err := n.bed.StopContainer(n.ctx, p.pod.Container("app"), 0); err != nil {
			t.Fatal(err)
		}
		n.endedWith(p.pod, "app", 137)
		app := spec.Containers[0]
		if _, err := n.bed.Runtime.RemoveContainer(n.ctx, removal(p.pod.Container("app"))); err != nil {
			t.Fatal(err)
		}
		p.pod.Containers = p.pod.Containers[1:]
		if err := n.bed.StartContainer(n.ctx, p.pod, spec, app); err != nil {
			t.Fatal(err)
		}
		if now := n.serving(p.pod); now.Boot == p.last.Boot {
			t.Errorf("the container is still at %+v", now)
		} else {
			p.last = now
		}
		p.pod.Containers = append([]bed.Container{p.pod.Containers[1]}, p.pod.Containers[0])
		n.logsOn(p.pod)
	}
}

// TestSleepContainerKilledFalling kills a container while its pod is paused to fall asleep. The signal is not lost: the
// pod stays awake, or it slept already and ends in its sleep.
func TestSleepContainerKilledFalling(t *testing.T) {
	n := start(t)
	p := n.sleeper("ending", "--mib", "64")
	stopped := make(chan error, 1)
	err := n.duringSleep("spool", p, func() {
		go func() { stopped <- n.bed.StopContainer(n.ctx, p.Container("app"), 0) }()
	})
	t.Logf("the sleep: %v", err)
	n.endedWith(p, "app", 137)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	n.removed(p)
}

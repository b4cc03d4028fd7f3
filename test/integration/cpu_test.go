package integration

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// The limit of processor time of the pods in these tests, in thousandths of a processor.
const (
	millis      = 200
	otherMillis = 300
)

// throttled runs a pod with the limit, and returns it and what the kernel says of the limit.
func (n *node) throttled(spec bed.PodSpec) (p *bed.Pod, limit string) {
	n.Helper()
	return n.throttledTo(spec, millis)
}

// throttledTo is throttled with a limit in thousandths of a processor.
func (n *node) throttledTo(spec bed.PodSpec, millis int) (p *bed.Pod, limit string) {
	n.Helper()
	spec.CPULimit = millis
	p, err := n.bed.RunPod(n.ctx, spec)
	if err != nil {
		n.Fatal(err)
	}
	return p, bed.CPUQuota(millis)
}

func (n *node) cpuLimit(p *bed.Pod) string {
	n.Helper()
	limit, err := n.bed.PodCPULimit(p)
	if err != nil {
		n.Fatal(err)
	}
	return limit
}

// hasCPULimit waits until a pod has a limit of processor time, or is gone.
func (n *node) hasCPULimit(p *bed.Pod, want string) {
	n.Helper()
	n.eventually("limit of processor time is put back", func() error {
		is, err := n.bed.PodCPULimit(p)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && is != want {
			err = fmt.Errorf("limit is %s, want %s", is, want)
		}
		return err
	})
}

// unlimited checks that a pod has no limit of processor time now, if it had this one.
func (n *node) unlimited(p *bed.Pod, was string) {
	n.Helper()
	if is := n.cpuLimit(p); is == was {
		n.Errorf("limit of processor time is %s, as before", is)
	}
}

func serves(name string) bed.PodSpec {
	return bed.PodSpec{Name: name, Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib", "64"},
	}}}
}

// TestCPULimitOfSave looks at a pod's limit of processor time in the middle of saves: there is none. After the save it
// is what it was, also if the agent, containerd or the shim was killed. If somebody has set another one meanwhile, that
// stays.
func TestCPULimitOfSave(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p, limit := n.throttled(serves("limited"))
	before, pid := n.serving(p), n.sentry(p)
	inSave := func(look func()) error {
		return n.duringCapture(request(p, false), func() {
			n.freezeSentry(pid)
			n.unlimited(p, limit)
			look()
			n.signal(pid, syscall.SIGCONT)
		})
	}

	if err := inSave(func() {}); err != nil {
		t.Fatal(err)
	}
	n.hasCPULimit(p, limit)

	if err := inSave(n.agent.Kill); err == nil {
		t.Error("the agent was not killed in the middle")
	}
	n.hasCPULimit(p, limit)
	n.startAgent(at.flags()...)
	n.alive(p, before)
	n.settled(at)

	if err := inSave(func() { n.setCPULimit(p, otherMillis) }); err != nil {
		t.Fatal(err)
	}
	n.hasCPULimit(p, bed.CPUQuota(otherMillis))
	n.setCPULimit(p, millis)

	if err := inSave(n.bed.Containerd.Kill); err == nil {
		t.Error("containerd was not killed in the middle")
	}
	n.hasCPULimit(p, limit)
	if err := n.bed.Containerd.Start(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.alive(p, before)

	shims, err := bed.Shims(p.ID)
	if err != nil || len(shims) == 0 {
		t.Fatalf("shims %v, %v", shims, err)
	}
	err = inSave(func() {
		for _, shim := range shims {
			n.signal(shim, syscall.SIGKILL)
		}
	})
	if err == nil {
		t.Error("the shim was not killed in the middle")
	}
	n.hasCPULimit(p, limit)
}

func (n *node) setCPULimit(p *bed.Pod, millis int) {
	n.Helper()
	if err := n.bed.SetPodCPULimit(p, millis); err != nil {
		n.Fatal(err)
	}
}

// TestCPULimitOfRestore looks at a pod's limit of processor time while it is restored: there is none. Once the pod is
// restored it is what it was, also if the shim was killed in between.
func TestCPULimitOfRestore(t *testing.T) {
	n := start(t)
	origin := n.workload("origin", "serve", "--mib", "64")
	before := n.serving(origin)
	n.checkpoint("origin", "--name=saved")

	looked := false
	spec := fromSnapshot("restored", "default/saved", "serve", "--mib", "64")
	spec.UID = "11111111-0000-4000-8000-000000000001"
	p := &bed.Pod{UID: spec.UID}
	limit := bed.CPUQuota(millis)
	spec.Made = func() error { // the sandbox is there, and waits for its containers
		looked = true
		n.unlimited(p, limit)
		return nil
	}
	p, _ = n.throttled(spec)
	if !looked {
		t.Error("nobody has looked")
	}
	n.hasCPULimit(p, limit)
	n.checkWhole(p, before.Boot, 64)

	spec = fromSnapshot("killed", "default/saved", "serve", "--mib", "64")
	spec.UID, spec.CPULimit = "11111111-0000-4000-8000-000000000002", millis
	killed := &bed.Pod{UID: spec.UID}
	spec.Made = func() error {
		n.unlimited(killed, limit)
		return n.killShims(spec.UID)
	}
	if _, err := n.bed.RunPod(n.ctx, spec); err == nil {
		t.Error("the shim was not killed in the middle")
	}
	n.hasCPULimit(killed, limit)
}

// killShims kills the shims of the pod with that UID.
func (n *node) killShims(uid string) error {
	pods, err := n.bed.Pods(n.ctx)
	for _, p := range pods {
		if p.UID != uid {
			continue
		}
		shims, err := bed.Shims(p.ID)
		for _, shim := range shims {
			n.signal(shim, syscall.SIGKILL)
		}
		if err != nil || len(shims) > 0 {
			return err
		}
	}
	return errors.Join(err, errors.New("no shim of "+uid))
}

// TestKeepCPULimits has the agent leave limits alone.
func TestKeepCPULimits(t *testing.T) {
	n := start(t, "--keep-cpu-limits")
	p, limit := n.throttled(serves("limited"))
	n.serving(p)
	pid := n.sentry(p)
	err := n.duringCapture(request(p, false), func() {
		n.freezeSentry(pid)
		if is := n.cpuLimit(p); is != limit {
			t.Errorf("limit is %s, it was %s", is, limit)
		}
		n.signal(pid, syscall.SIGCONT)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSleepResized changes the resources of a pod that sleeps, as a kubelet does in place, and those of one that is
// ready. Both have them when they are awake again.
func TestSleepResized(t *testing.T) {
	n := start(t)
	for i, readies := range []bool{false, true} {
		n.readies = readies
		p, _ := n.throttled(serves(fmt.Sprint("resized-", i)))
		before := n.serving(p)
		n.asleep(p)
		const more = 2 * millis
		if err := n.bed.SetPodCPULimit(p, more); err != nil {
			t.Fatal(err)
		}
		if err := n.bed.SetContainerCPULimit(n.ctx, p.Container("app"), more); err != nil {
			t.Error(err)
		}
		if err := n.topsAsleep(p, true); err != nil {
			t.Error(err)
		}
		n.alive(p, before)
		n.hasCPULimit(p, bed.CPUQuota(more))
		n.verify(p)
	}
}

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/agent/ready"
	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// repaired reports whether the node's runsc is the repaired build.
func repaired() bool { return os.Getenv(bed.RunscVariable) == "" }

// readyFlag returns the agent's flag for that many pods that are ready.
func readyFlag(pods int) string {
	cost := ready.CreatedCost
	if repaired() {
		cost = ready.LoadedCost
	}
	return fmt.Sprint("--ready-memory=", pods*cost)
}

// ready has a pod that sleeps made ready to wake, as the agent does after some seconds.
func (n *node) ready(p *bed.Pod) {
	n.Helper()
	if err := n.containerd().OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.MakeReady, Load: true}); err != nil {
		n.Fatal(err)
	}
	if err := n.topsReady(p, true); err != nil {
		n.Error(err)
	}
	sandbox := n.sandboxOfReady(p)
	if sandbox == 0 {
		n.Fatal("nothing runs for it")
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", sandbox)); repaired() &&
		(err != nil || !strings.Contains(string(status), "Seccomp:\t2\n")) {
		n.Errorf("its sandbox waits without system call filters: %v\n%s", err, status)
	}
	waits := slices.ContainsFunc(pidsOf(n.T, p.Container("app")), func(pid int) bool {
		return strings.Contains(commandOf(pid), " --go-fd=")
	})
	if waits != repaired() {
		n.Errorf("a restore of its container waits: %v, want it with the repaired build alone", waits)
	}
}

// topsReady returns an error unless "diapause top" shows whether a pod that sleeps is ready.
func (n *node) topsReady(p *bed.Pod, want bool) error {
	var top struct {
		Sandboxes []struct {
			ID, Asleep string
			Ready      bool
		}
	}
	n.decode(n.mustCLI("--output=json", "top"), &top)
	for _, s := range top.Sandboxes {
		if s.ID == p.ID && s.Asleep != "" && s.Ready == want {
			return nil
		}
	}
	return fmt.Errorf("top shows %+v, want pod %s asleep, and ready: %v", top.Sandboxes, p.ID, want)
}

// sandboxOfReady returns the process of a pod's sandbox, or 0 if none runs.
func (n *node) sandboxOfReady(p *bed.Pod) int {
	n.Helper()
	for _, pid := range pidsOf(n.T, p.ID) {
		if strings.Contains(commandOf(pid), " boot ") {
			return pid
		}
	}
	return 0
}

// processesOfReady returns the processes of runsc that a pod has which sleeps.
func (n *node) processesOfReady(p *bed.Pod) []int {
	n.Helper()
	all := pidsOf(n.T, p.ID)
	for _, c := range p.Containers {
		all = append(all, pidsOf(n.T, c.ID)...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(pid int) bool { return !strings.Contains(commandOf(pid), "runsc") })
}

// wokeReady returns how many pods were woken whose sandboxes were there before, or were not.
func (n *node) wokeReady(address string, was bool) int {
	return n.metric(address, fmt.Sprintf("diapause_wake_seconds_count{ready=%q}", fmt.Sprint(was)))
}

// TestReady: of two pods that sleep, one may be ready: the one that fell asleep last. It wakes by its sandbox, and is
// what it was; and so on, as often as it sleeps. What is ready is left by one agent to the next.
func TestReady(t *testing.T) {
	const metrics = "127.0.0.1:9465"
	at := newPlace(t)
	flags := append(at.flags(), readyFlag(1), "--metrics="+metrics)
	n := start(t, flags...)
	older, p := n.sleeper("older", "--mib=8"), n.sleeper("newer", "--mib=64")
	before, old := n.serving(p), n.serving(older)
	kept := bed.SilentClient(30 * time.Second)
	n.ask(kept, p)
	n.asleep(older)
	n.eventually("the only one is ready", func() error { return n.topsReady(older, true) })
	for i, client := range []*http.Client{kept, bed.SilentClient(30 * time.Second)} {
		n.asleep(p)
		n.eventually("the newer is ready", func() error { return n.topsReady(p, true) })
		n.eventually("the older no longer", func() error { return n.topsReady(older, false) })
		if i == 1 {
			n.restartAgent(flags...)
			if err := n.topsReady(p, true); err != nil {
				t.Error("with the next agent: ", err)
			}
		}
		if boot := n.ask(client, p); boot != before.Boot {
			t.Errorf("boot %q, and %q before", boot, before.Boot)
		}
		n.clock(p)
		n.eventually("it is counted", func() error {
			if got := n.wokeReady(metrics, true); got != 1 {
				return fmt.Errorf("%d wakes of ready pods", got)
			}
			return nil
		})
		n.alive(p, before)
		n.verify(p)
		n.logsOn(p)
	}
	n.alive(older, old)
	if got := n.wokeReady(metrics, false); got > 1 {
		t.Errorf("%d wakes of pods that were not ready", got)
	}
	n.settled(at)
}

// clock checks that the clock of a pod that has just woken is right.
func (n *node) clock(p *bed.Pod) {
	n.Helper()
	const tolerance = time.Second // it slept for longer
	var state answers.State
	from := time.Now().Add(-tolerance)
	if err := n.get(p, "/state", &state); err != nil {
		n.Fatal(err)
	}
	if to := time.Now().Add(tolerance); state.Now.Before(from) || state.Now.After(to) {
		n.Errorf("its clock says %v, want between %v and %v", state.Now, from, to)
	}
}

// TestReadyDropped: an agent that may keep nothing ready drops what it finds, and the pod wakes as any other.
func TestReadyDropped(t *testing.T) {
	at := newPlace(t)
	n := start(t, append(at.flags(), readyFlag(1))...)
	p := n.sleeper("dropped", "--mib=8")
	before := n.serving(p)
	n.asleep(p)
	n.ready(p)
	n.restartAgent(append(at.flags(), "--ready-memory=0")...)
	n.eventually("it is not ready", func() error { return n.topsReady(p, false) })
	n.eventually("nothing of it is left", func() error {
		for _, pid := range n.processesOfReady(p) {
			return fmt.Errorf("process %d is left: %s", pid, commandOf(pid))
		}
		return nil
	})
	n.alive(p, before)
	n.logsOn(p)
}

// TestReadyDies ends what was made ready, one of its processes and all: its sandbox, gofers, the sidecar, and what
// waits to restore a container. The pod wakes all the same, and goes on.
func TestReadyDies(t *testing.T) {
	at := newPlace(t)
	flags := append(at.flags(), readyFlag(1))
	n := start(t, flags...)
	p := n.sleeper("dies", "--mib=8")
	before := n.serving(p)
	kinds := []string{"runsc-sandbox", "runsc-gofer"}
	if repaired() {
		kinds = append(kinds, "runsc-checkpointgofer", " --go-fd=")
	}
	for _, what := range append(kinds, "") {
		n.asleep(p)
		n.ready(p)
		killed := 0
		for _, pid := range n.processesOfReady(p) {
			c := commandOf(pid)
			if !strings.Contains(c, what) {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // others took it along
				t.Fatal(err)
			}
			killed++
			n.eventually("it has ended", func() error {
				if commandOf(pid) != "" {
					return fmt.Errorf("process %d runs", pid)
				}
				return nil
			})
		}
		if killed == 0 {
			t.Errorf("there is no %s", what)
		}
		n.alive(p, before)
		n.logsOn(p)
	}
	n.settled(at)
}

// TestReadyRenewed ends the sandbox of a pod that is ready. The agent has it made ready again.
func TestReadyRenewed(t *testing.T) {
	const metrics = "127.0.0.1:9465"
	flags := []string{readyFlag(1), "--metrics=" + metrics}
	n := start(t, flags...)
	p := n.sleeper("renewed", "--mib=8")
	before := n.serving(p)
	n.asleep(p)
	n.ready(p)
	n.signal(n.sandboxOfReady(p), syscall.SIGKILL)
	n.eventually("it has ended", func() error {
		if n.sandboxOfReady(p) != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	n.restartAgent(flags...) // which looks at once, and then once a minute
	n.eventually("it is ready again", func() error {
		if n.sandboxOfReady(p) == 0 {
			return errors.New("nothing runs for it")
		}
		return nil
	})
	n.alive(p, before)
	n.eventually("it is counted", func() error {
		if got := n.wokeReady(metrics, true); got != 1 {
			return fmt.Errorf("%d wakes of ready pods", got)
		}
		return nil
	})
	n.logsOn(p)
}

// TestReadyKilled: daemons are killed while a pod is ready. It wakes; or, without its shim, it ends and leaves nothing.
func TestReadyKilled(t *testing.T) {
	at := newPlace(t)
	flags := append(at.flags(), readyFlag(1))
	n := start(t, flags...)
	p := n.sleeper("killed", "--mib=8")
	before := n.serving(p)
	for what, kill := range map[string]func(){
		"containerd": func() {
			n.bed.Containerd.Kill()
			if err := n.bed.Containerd.Start(n.ctx); err != nil {
				t.Fatal(err)
			}
		},
		"agent": func() { n.restartAgent(flags...) },
	} {
		n.asleep(p)
		n.ready(p)
		kill()
		if err := n.topsReady(p, true); err != nil {
			t.Errorf("%s was killed: %v", what, err)
		}
		n.alive(p, before)
		n.logsOn(p)
	}
	n.settled(at)
	n.asleep(p)
	n.ready(p)
	n.signal(n.shimOf(p.ID), syscall.SIGKILL)
	for _, name := range []string{"app", "log"} {
		n.endedWith(p, name, 255)
	}
	n.removed(p)
}

// TestReadyEnds ends pods that are ready: by SIGKILL, by a signal that asks for it, and by their removal. They end as
// pods that sleep do, and leave nothing.
func TestReadyEnds(t *testing.T) {
	n := start(t, readyFlag(3))
	pods := []*bed.Pod{n.sleeper("kill", "--mib=8"), n.sleeper("term", "--mib=8"), n.sleeper("removed", "--mib=8")}
	for _, p := range pods {
		n.asleep(p)
		n.ready(p)
	}
	if err := n.bed.StopContainer(n.ctx, pods[0].Container("app"), 0); err != nil {
		t.Error(err)
	}
	if err := n.bed.StopContainer(n.ctx, pods[1].Container("app"), 10); err != nil {
		t.Error(err)
	}
	for i, code := range []int32{137, 143} {
		for _, name := range []string{"app", "log"} {
			n.endedWith(pods[i], name, code)
		}
		if pid := n.sandboxOfReady(pods[i]); pid != 0 {
			t.Errorf("process %d of pod %s is left", pid, pods[i].Name)
		}
	}
	for _, p := range pods {
		n.removed(p)
	}
}

// TestReadyAwake: a pod that is awake, or wakes just then, is not made ready, and runs on.
func TestReadyAwake(t *testing.T) {
	n := start(t, readyFlag(1))
	p := n.sleeper("awake", "--mib=8")
	before := n.serving(p)
	c := n.containerd()
	for _, v := range []sleep.Verb{sleep.MakeReady, sleep.DropReady} {
		if err := c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: v}); v == sleep.MakeReady && !errors.Is(err, sleep.ErrUnfit) {
			t.Errorf("%s: %v", v, err)
		}
		n.unharmed(p, before)
	}
	for range 5 { // at once
		n.asleep(p)
		made := make(chan error, 1)
		go func() { made <- c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.MakeReady}) }()
		var now answers.State
		if err := n.get(p, "/state", &now); err != nil || now.Boot != before.Boot {
			t.Errorf("%v, boot %q, and %q before", err, now.Boot, before.Boot)
		}
		if err := <-made; err != nil && !errors.Is(err, sleep.ErrUnfit) {
			t.Error(err)
		}
	}
	n.logsOn(p)
}

// TestReadyReboot reboots the node while pods are ready: what TestSleepReboot says holds for them, too.
func TestReadyReboot(t *testing.T) {
	n := start(t)
	n.readies = true
	n.rebootAsleep()
}

// TestReadyTwoWakes wakes a pod that is ready in many ways at once.
func TestReadyTwoWakes(t *testing.T) {
	n := start(t)
	n.readies = true
	n.wakeAtOnce()
}

// TestReadyDamaged damages the snapshot of a pod that is ready: it ends, as any other.
func TestReadyDamaged(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	n.readies = true
	n.damageAsleep(at)
}

// TestReadyOtherRunsc has the node get a runsc of another version while a pod is ready: it wakes by the version that
// its sandbox has.
func TestReadyOtherRunsc(t *testing.T) {
	n := start(t)
	runsc := n.copyRunsc()
	p := n.sleeper("outdated", "--mib", "8")
	before := n.serving(p)
	n.asleep(p)
	n.ready(p)
	n.nextVersion(runsc)
	if _, err := n.cli("wake", p.ID); err != nil {
		t.Error(err)
	}
	n.alive(p, before)
	n.verify(p)
}

// TestReadyThrottled has a pod be ready whose limit of processor time is low. It is what it was after the wake.
func TestReadyThrottled(t *testing.T) {
	n := start(t)
	p, limit := n.throttledTo(serves("throttled"), 100)
	before := n.serving(p)
	for range 3 {
		n.asleep(p)
		n.ready(p)
		n.hasCPULimit(p, limit)
		n.alive(p, before)
		n.verify(p)
		n.hasCPULimit(p, limit)
	}
}

package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// impatient is a client without kept connections.
var impatient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// TestSleepHalfRequest has a pod sleep while a client is in the middle of a request.
func TestSleepHalfRequest(t *testing.T) {
	n := start(t)
	p := n.sleeper("half", "--mib", "8")
	c, err := bed.Silent.Dial("tcp", p.IP+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /state HTTP/1.1\r\nHo"); err != nil {
		t.Fatal(err)
	}
	n.asleep(p)
	if _, err := io.WriteString(c, "st: pod\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), `"boot"`) {
		t.Errorf("answer %q, %v", b, err)
	}
}

// TestSleepExec wakes a pod by exec in a container that is not that of the server, and by the command line.
func TestSleepExec(t *testing.T) {
	n := start(t)
	p := n.sleeper("exec", "--mib", "8")
	before := n.serving(p)
	n.asleep(p)
	out, code, err := n.bed.Exec(n.ctx, p.Container("log"), "echo", "here")
	if err != nil || code != 0 || out != "here\n" {
		t.Errorf("exec: %q, %d, %v", out, code, err)
	}
	n.alive(p, before)
	n.asleep(p)
	if out := n.mustCLI("wake", "exec"); !strings.Contains(out, "is awake, after") {
		t.Errorf("wake says %q", out)
	}
	n.alive(p, before)
	if out := n.mustCLI("wake", "exec"); !strings.Contains(out, "did not sleep") {
		t.Errorf("wake of a pod that is awake says %q", out)
	}
	n.logsOn(p)
}

// TestSleepCreated has a container be created as the kubelet does it for `kubectl debug`, or after a crash. A pod that
// sleeps wakes, and one that is falling asleep stays awake. A container that has failed keeps its pod awake.
func TestSleepCreated(t *testing.T) {
	n := start(t)
	p := n.sleeper("created", "--mib", "8")
	before := n.serving(p)
	begin := func(name, command string) error {
		return n.bed.StartContainer(n.ctx, p, bed.PodSpec{Name: p.Name}, bed.Container{
			Name: name, Command: []string{"/bin/sh", "-c", command},
		})
	}
	runs := func(name string) {
		t.Helper()
		if out, code, err := n.bed.Exec(n.ctx, p.Container(name), "echo", "here"); err != nil || out != "here\n" {
			t.Errorf("exec in %s: %q, %d, %v", name, out, code, err)
		}
	}
	n.asleep(p)
	if err := begin("debug", "sleep 1000"); err != nil {
		t.Fatal(err)
	}
	runs("debug")
	n.alive(p, before)
	n.asleep(p)
	runs("debug")

	c := n.containerd()
	containers, err := c.Running(n.ctx, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("it is watched", func() error {
		return c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.Watch, Containers: containers})
	})
	if err := begin("late", "sleep 1000"); err != nil {
		t.Fatal(err)
	}
	fall := sleep.Order{Verb: sleep.Fall, Holder: "nobody", Image: "/none"}
	if err := c.OrderSleep(n.ctx, p.ID, fall); !errors.Is(err, sleep.ErrTraffic) {
		t.Errorf("a container was begun while it fell asleep: %v", err)
	}
	if err := c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.Stay}); err != nil {
		t.Error(err)
	}
	runs("late")
	n.alive(p, before)
	n.asleep(p)
	if err := begin("failing", "exit 3"); err != nil {
		t.Fatal(err)
	}
	n.endedWith(p, "failing", 3)
	n.refusedSleep(p, "container failing has failed, with status 3")
	n.alive(p, before)
}

// TestSleepTwoWakes wakes a pod in many ways at once: it wakes once, and all are answered.
func TestSleepTwoWakes(t *testing.T) { start(t).wakeAtOnce() }

func (n *node) wakeAtOnce() {
	n.Helper()
	p := n.sleeper("many", "--mib", "8")
	before := n.serving(p)
	for range 3 {
		n.asleep(p)
		var g errgroup.Group
		for range 5 {
			g.Go(func() error {
				r, err := impatient.Get("http://" + p.IP + ":8080/state")
				if err != nil {
					return err
				}
				return r.Body.Close()
			})
			g.Go(func() error {
				_, _, err := n.bed.Exec(n.ctx, p.Container("app"), "/bin/workload")
				return err
			})
		}
		g.Go(func() error {
			_, err := n.cli("wake", p.ID)
			return err
		})
		if err := g.Wait(); err != nil {
			n.Error(err)
		}
		n.alive(p, before)
	}
}

// TestSleepEnds deletes pods that sleep: they end without being woken, and leave nothing.
func TestSleepEnds(t *testing.T) {
	n := start(t)
	for _, tc := range []struct {
		name    string
		timeout int64
		want    int32
	}{{"killed", 0, 137}, {"asked", 30, 143}} {
		t.Run(tc.name, func(t *testing.T) {
			p := n.sleeper(tc.name, "--mib", "8")
			n.asleep(p)
			began := time.Now()
			if err := n.bed.StopContainer(n.ctx, p.Container("app"), tc.timeout); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			for _, name := range []string{"app", "log"} {
				n.endedWith(p, name, tc.want)
			}
			n.removed(p)
		})
	}
	p := n.sleeper("removed", "--mib", "8")
	n.asleep(p)
	n.removed(p)
}

// processesOf returns the command lines of processes that name a pod.
func processesOf(t *testing.T, pod string) (found []string) {
	t.Helper()
	for _, pid := range pidsOf(t, pod) {
		found = append(found, commandOf(pid))
	}
	return found
}

// pidsOf returns the processes whose command lines name a pod.
func pidsOf(t *testing.T, pod string) (found []int) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if pid, err := strconv.Atoi(e.Name()); err == nil && strings.Contains(commandOf(pid), pod) {
			found = append(found, pid)
		}
	}
	return found
}

// commandOf returns the command line of a process, or "" if there is none.
func commandOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// TestSleepAgentKilled kills the agent while a pod sleeps. Whoever asks the pod gets an answer once there is another
// agent. The snapshot that the pod needs cannot be removed, before and after.
func TestSleepAgentKilled(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("alone", "--mib", "8")
	before := n.serving(p)
	n.sleep("needed", p)
	n.refused([]string{"in use"}, "rm", "needed")
	n.restartAgent(at.flags()...)
	n.refused([]string{"in use"}, "rm", "needed")
	n.mustCLI("gc", "--grace=0s")
	n.agent.Kill()
	answered := n.asks(p)
	select {
	case err := <-answered:
		t.Errorf("answered without an agent: %v", err)
	case <-time.After(time.Second):
	}
	n.startAgent(at.flags()...)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	n.alive(p, before)
	n.eventually("removed", func() error {
		_, err := n.cli("rm", "needed")
		return err
	})
	n.settled(at)
}

// TestSleepContainerd restarts containerd while a pod sleeps: it finds the pod running, and its log goes on.
func TestSleepContainerd(t *testing.T) {
	n := start(t)
	p := n.sleeper("orphan", "--mib", "8")
	before := n.serving(p)
	n.asleep(p)
	if err := n.bed.Containerd.Restart(n.ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app", "log"} {
		s, err := n.bed.Runtime.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: p.Container(name)})
		if err != nil || s.Status.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container %s is %v, %v", name, s.GetStatus().GetState(), err)
		}
	}
	if err := n.topsAsleep(p, true); err != nil {
		t.Error(err)
	}
	n.alive(p, before)
	n.logsOn(p)
	n.asleep(p)
	n.alive(p, before)
}

// TestSleepStats looks at a pod's processor time over its sleeps: it never gets less.
func TestSleepStats(t *testing.T) {
	n := start(t)
	p := n.sleeper("counted", "--mib", "8")
	last := uint64(0)
	look := func(when string) {
		var now uint64
		n.eventually("statistics", func() error {
			s, err := n.bed.Runtime.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: p.Container("app")})
			if err != nil {
				return err
			}
			now = s.GetStats().GetCpu().GetUsageCoreNanoSeconds().GetValue()
			return nil
		})
		if now < last {
			t.Errorf("%s it had used %d ns, and %d before", when, now, last)
		}
		last = now
	}
	for range 2 {
		look("awake")
		n.asleep(p)
		look("asleep")
		if err := n.topsAsleep(p, true); err != nil {
			t.Error(err)
		}
		n.serving(p)
		look("awake again")
	}
	if last == 0 {
		t.Error("it has used nothing")
	}
}

// TestSleepRefused asks for sleeps that cannot be: the pod runs on.
func TestSleepRefused(t *testing.T) {
	n := start(t)
	p := n.sleeper("busy", "--mib", "8")
	before := n.serving(p)
	session, err := n.bed.ExecTerminal(n.ctx, p.Container("log"), "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("refused", func() error {
		_, err := n.cli("sleep", p.ID)
		if err == nil || !strings.Contains(err.Error(), "by exec") {
			return fmt.Errorf("it sleeps: %w", err)
		}
		return nil
	})
	n.alive(p, before)
	if err := session.Type("exit\r"); err != nil {
		t.Fatal(err)
	}
	defer session.Detach()
	n.eventually("asleep", func() error {
		_, err := n.cli("sleep", p.ID)
		return err
	})
	n.refused([]string{"it sleeps"}, "sleep", p.ID)
	n.alive(p, before)

	tty, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "tty", Containers: []bed.Container{
		{Name: "sh", Command: []string{"/bin/sh"}, TTY: true, Stdin: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.refusedSleep(tty, "terminal")
	n.refused([]string{"no pod of this node"}, "sleep", "nobody")
}

// TestSleepUnderLoad has a pod fall asleep while clients ask it, again and again. Some sleeps meet traffic and are
// given up. No request is lost.
func TestSleepUnderLoad(t *testing.T) {
	n := start(t)
	p := n.sleeper("asked", "--mib", "8")
	stop := make(chan struct{})
	var g errgroup.Group
	for _, client := range []*http.Client{impatient, bed.SilentClient(30 * time.Second)} {
		g.Go(func() error {
			for {
				r, err := client.Get("http://" + p.IP + ":8080/state")
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, r.Body)
				if err := errors.Join(err, r.Body.Close()); err != nil {
					return err
				}
				select {
				case <-stop:
					return nil
				case <-time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond):
				}
			}
		})
	}
	slept := 0
	for range 15 {
		n.eventually("awake", func() error { return n.topsAsleep(p, false) })
		if _, err := n.cli("sleep", p.ID); err == nil {
			slept++
		} else if !strings.Contains(err.Error(), "packets came") {
			t.Error(err)
		}
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("it fell asleep %d times of 15", slept)
}

// TestSleepRestored puts a pod to sleep that was restored, and checkpoints one that has slept. No other pod is restored
// from the snapshot of its sleep.
func TestSleepRestored(t *testing.T) {
	n := start(t)
	p := n.sleeper("origin", "--mib", "8")
	before := n.serving(p)
	s := n.checkpoint("--stop", p.ID)
	p = n.restore(s.Name, "--name=again")[0]
	n.asleep(p)
	var all struct{ Snapshots []snapshotted }
	n.decode(n.mustCLI("--output=json", "ls"), &all)
	i := slices.IndexFunc(all.Snapshots, func(s snapshotted) bool { return s.Purpose == string(snapshot.ForSleep) })
	if i < 0 {
		t.Fatalf("no snapshot of a sleep: %+v", all.Snapshots)
	}
	n.refused([]string{"of the sleep of pod again", "serves that pod alone"}, "restore", all.Snapshots[i].Name)
	n.alive(p, before)
	n.asleep(p)
	n.alive(p, before)
	s = n.checkpoint("--stop", p.ID)
	p = n.restore(s.Name, "--name=third")[0]
	n.alive(p, before)
}

// TestSleepShimKilled kills the shim of a pod that sleeps: the pod ends.
func TestSleepShimKilled(t *testing.T) {
	n := start(t)
	p := n.sleeper("shimless", "--mib", "8")
	n.sleep("", p)
	for _, line := range processesOf(t, p.ID) {
		t.Log(line)
	}
	n.signal(n.shimOf(p.ID), syscall.SIGKILL)
	n.removed(p)
}

// shimOf returns the process of a container's shim.
func (n *node) shimOf(id string) int {
	n.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		n.Fatal(err)
	}
	for _, e := range all {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(b), "shim-diapause") && strings.Contains(string(b), "-id\x00"+id) {
			var pid int
			fmt.Sscan(e.Name(), &pid)
			return pid
		}
	}
	n.Fatalf("no shim of %s", id)
	return 0
}

// TestSleepDamaged damages the snapshot of a pod that sleeps: whoever wakes it is told, and the pod ends.
func TestSleepDamaged(t *testing.T) {
	at := newPlace(t)
	start(t, at.flags()...).damageAsleep(at)
}

func (n *node) damageAsleep(at place) {
	n.Helper()
	p := n.sleeper("damaged", "--mib", "8")
	n.sleep("", p)
	n.settled(at) // the store has the snapshot, too
	n.agent.Kill()
	for _, dir := range []string{at.state + "/spool/default/packs", at.store + "/default/packs"} {
		packs, err := os.ReadDir(dir)
		if err != nil {
			n.Fatal(err)
		}
		for _, e := range packs {
			if err := os.Truncate(dir+"/"+e.Name(), 100); err != nil {
				n.Fatal(err)
			}
		}
	}
	n.startAgent(at.flags()...)
	if _, err := n.cli("wake", p.ID); err == nil || !strings.Contains(err.Error(), "wake") {
		n.Errorf("error %v", err)
	}
	n.endedWith(p, "app", 128)
	n.endedWith(p, "log", 128)
	n.removed(p)
}

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// TestCheckpointRefused asks for checkpoints that cannot be made.
func TestCheckpointRefused(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("good", "serve", "--mib", "8")
	before := n.serving(p)
	n.pods(bed.PodSpec{Name: "twice", Namespace: "one"}, bed.PodSpec{Name: "twice", Namespace: "two"},
		bed.PodSpec{Name: "ordinary", Handler: bed.Runc}, bed.PodSpec{Name: "over"}, bed.PodSpec{Name: "empty"})
	n.exit("over")
	empty := n.find("empty")
	if err := n.bed.StopContainer(n.ctx, empty.Containers[0].ID, 0); err != nil {
		n.Fatal(err)
	}
	first := n.checkpoint("good", "--name=first")

	for _, tt := range []struct {
		args  []string
		words []string
	}{
		{[]string{"nobody"}, []string{"nobody", "not found"}},
		{[]string{"default/nobody"}, []string{"default/nobody", "not found"}},
		{[]string{"ffffffffffff"}, []string{"ffffffffffff", "not found"}},
		{[]string{"twice"}, []string{"twice", "ambiguous", "one/twice", "two/twice"}},
		{[]string{"ordinary"}, []string{"default/ordinary", "another runtime", "io.containerd.runc.v2"}},
		{[]string{"over"}, []string{"default/over", "not running"}},
		{[]string{"empty"}, []string{"default/empty", "no running container"}},
		{[]string{"good", "--name=" + first.Name}, []string{"default/first", "already exists"}},
		{[]string{"good", "--name=.."}, []string{"--name", `".."`}},
		{[]string{"good", "--name=Upper"}, []string{"--name", "Upper"}},
		{[]string{"good", "--name=a/b"}, []string{"--name", "a/b"}},
		{[]string{"good", "--name=" + strings.Repeat("x", 300)}, []string{"--name", "at most 253"}},
		{[]string{strings.Repeat("x", 600)}, []string{"xxx", "not found"}},
		{[]string{"../../etc"}, []string{"../../etc", "not found"}},
	} {
		for _, more := range [][]string{nil, {"--stop"}} {
			n.refused(tt.words, append(append([]string{"checkpoint"}, tt.args...), more...)...)
		}
	}
	for _, name := range []string{
		"..", ".", "a\x00b", "a\nb", "Upper", strings.Repeat("x", 300), "a/../b", "-a",
		"manifest/",
	} {
		req := request(p, true)
		req.Name = name
		stream, err := n.client().Checkpoint(n.ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "snapshot name") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	n.unharmed(p, before)
	n.settled(at)
}

// TestCheckpointOfDevice: a pod that has what gVisor cannot save is neither checkpointed nor put to sleep. The message
// names that, and has nothing of the sandbox's inside.
func TestCheckpointOfDevice(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "tunnel", Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"},
		Capabilities: []string{"NET_ADMIN"},
	}}})
	must(t, err)
	before := n.serving(p)
	n.post(p, "/tun")
	for verb, why := range map[string]string{
		"checkpoint": "/dev/net/tun does not support save/restore", "sleep": "its container app has NET_ADMIN",
	} {
		_, err := n.cli(verb, "tunnel")
		n.refusedWith([]string{why}, verb, err)
		if err != nil && strings.Contains(err.Error(), "goroutine") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if after := n.serving(p); after.Boot != before.Boot {
		t.Errorf("the process is %s, was %s", after.Boot, before.Boot)
	}
}

// TestCheckpointOddNames checkpoints pods that no Kubernetes would let be.
func TestCheckpointOddNames(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	for _, name := range []string{"Upper_Case", "ünï code", strings.Repeat("long", 40)} {
		n.pods(bed.PodSpec{Name: name})
		s := n.checkpoint(name)
		if !s.Replicated {
			t.Errorf("pod %q: %+v", name, s)
		}
	}
	n.pods(bed.PodSpec{Name: "lost", Namespace: "No_Namespace"})
	n.refused([]string{"No_Namespace", "namespace"}, "checkpoint", "No_Namespace/lost")
}

// TestSandboxExits has the sandbox end while it is being checkpointed: it is killed, or it panics.
func TestSandboxExits(t *testing.T) {
	const panics = syscall.SIGUSR2
	at := newPlace(t)
	n := startOn(t, bed.Options{Runsc: map[string]string{"panic-signal": strconv.Itoa(int(panics))}}, at.flags()...)
	witness := n.workload("witness", "serve", "--mib", "8")
	before := n.serving(witness)
	for i, dies := range []struct {
		stop  bool
		of    syscall.Signal
		which string
	}{
		{false, syscall.SIGKILL, "the sandbox exited"},
		{true, syscall.SIGKILL, "the sandbox exited"},
		{false, panics, `the sandbox died of "panic: Signal-induced panic`},
	} {
		p := n.workload(fmt.Sprint("dies-", i), "serve", "--mib", "128")
		n.serving(p)
		pid := n.sentry(p)
		err := n.duringCapture(request(p, dies.stop), func() {
			n.signal(pid, dies.of)
			n.signal(n.agent.PID(), syscall.SIGCONT)
		})
		if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), p.ID) ||
			!strings.Contains(err.Error(), dies.which) {
			t.Errorf("%v in its capture: %v", dies.of, err)
		}
	}
	p := n.workload("dies-early", "serve", "--mib", "8")
	n.serving(p)
	pid := n.sentry(p)
	err := n.during("prepare", request(p, false), func() { n.signal(pid, syscall.SIGKILL) })
	if err == nil || !strings.Contains(err.Error(), p.ID) {
		t.Errorf("killed before its capture: %v", err)
	}
	n.unharmed(witness, before)
	n.settled(at)
}

// TestInterrupted ends the command line by SIGINT while its request waits for its turn.
func TestInterrupted(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("wanted", "serve", "--mib", "192")
	before := n.serving(p)
	err := n.during("spool", request(p, false), func() { n.interrupt("queue", "checkpoint", "--stop", "wanted") })
	if err != nil {
		t.Error(err)
	}
	n.unharmed(p, before)
	n.settled(at)
}

// interrupt runs the command line, and ends it by SIGINT once it has told of a stage.
func (n *node) interrupt(stage string, args ...string) {
	n.Helper()
	told := filepath.Join(n.TempDir(), "told")
	f, err := os.Create(told)
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	cmd := exec.CommandContext(n.ctx, "diapause", args...)
	cmd.Stderr = f
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.eventually("stage "+stage, func() error {
		if b, err := os.ReadFile(told); err != nil || !bytes.Contains(b, []byte(stage)) {
			return fmt.Errorf("it has told %q, %v", b, err)
		}
		return nil
	})
	n.signal(cmd.Process.Pid, syscall.SIGINT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		n.Errorf("interrupted: %v", err)
	}
}

// TestCaptureTime has a sandbox not get on with its capture.
func TestCaptureTime(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags("--capture-time=4s")...) // a busy machine needs more than one to come to the memory
	p := n.workload("slow", "serve", "--mib", "128")
	before := n.serving(p)
	pid := n.sentry(p)
	for _, stop := range []bool{false, true} {
		err := n.duringCapture(request(p, stop), func() {
			n.freezeSentry(pid)
			time.Sleep(5 * time.Second)
			n.signal(pid, syscall.SIGCONT)
		})
		if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), p.ID) ||
			!strings.Contains(err.Error(), "took too long") {
			t.Errorf("stop=%v: %v", stop, err)
		}
		n.alive(p, before)
	}
	n.restartAgent(at.flags()...)
	n.unharmed(p, before)
	n.settled(at)
}

// TestAgentTerminated ends the agent by SIGTERM in the middle of a capture.
func TestAgentTerminated(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("stays", "serve", "--mib", "128")
	before := n.serving(p)
	for _, stop := range []bool{false, true} {
		err := n.duringCapture(request(p, stop), func() {
			n.signal(n.agent.PID(), syscall.SIGTERM)
			n.signal(n.agent.PID(), syscall.SIGCONT)
		})
		if err == nil || !strings.Contains(err.Error(), "the agent is being stopped") {
			t.Errorf("stop=%v: %v", stop, err)
		}
		select {
		case <-n.agent.Done():
		case <-time.After(40 * time.Second):
			t.Fatal("the agent does not end")
		}
		n.alive(p, before)
		n.startAgent(at.flags()...)
		n.unharmed(p, before)
		n.settled(at)
	}
}

// TestContainerdKilled kills containerd in the middle of a capture and starts it again. The pod runs on, also if it was
// to be stopped: nothing is saved.
func TestContainerdKilled(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	for _, stop := range []bool{false, true} {
		const tries = 5 // the capture may be over already, and the agent about to learn that
		killed := false
		for i := 0; i < tries && !killed; i++ {
			p := n.workload(fmt.Sprintf("stays-%v-%d", stop, i), "serve", "--mib", "128")
			killed = n.captureWithoutContainerd(at, p, stop)
		}
		if !killed {
			t.Errorf("stop=%v: %d captures were over before containerd was killed", stop, tries)
		}
	}
}

// captureWithoutContainerd kills containerd in the middle of a pod's capture, and starts it again. It returns false if
// the agent had containerd's answer by then, so that the checkpoint succeeds.
func (n *node) captureWithoutContainerd(at place, p *bed.Pod, stop bool) bool {
	n.Helper()
	before := n.serving(p)
	err := n.duringCapture(request(p, stop), func() {
		n.bed.Containerd.Kill()
		n.signal(n.agent.PID(), syscall.SIGCONT)
	})
	if err := n.bed.Containerd.Start(n.ctx); err != nil {
		n.Fatal(err)
	}
	if err == nil {
		n.settled(at)
		return false
	}
	if !strings.Contains(err.Error(), p.ID) {
		n.Errorf("without containerd: %v", err)
	}
	n.unharmed(p, before)
	n.settled(at)
	return true
}

// pods runs pods.
func (n *node) pods(specs ...bed.PodSpec) {
	n.Helper()
	for _, s := range specs {
		s.Containers = []bed.Container{{
			Name: "app", Image: images.Workload,
			Command: []string{"/bin/workload", "serve", "--mib", "1"},
		}}
		if _, err := n.bed.RunPod(n.ctx, s); err != nil {
			n.Fatal(err)
		}
	}
}

func (n *node) find(name string) *bed.Pod {
	n.Helper()
	pods, err := n.bed.Pods(n.ctx)
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range pods {
		if p.Name == name {
			return p
		}
	}
	n.Fatalf("no pod %s", name)
	return nil
}

// exit ends a pod's sandbox without removing the pod.
func (n *node) exit(name string) {
	n.Helper()
	p := n.find(name)
	n.signal(n.sentry(p), syscall.SIGKILL)
	n.ended(p)
}

// ended waits until containerd says that a pod's sandbox and containers have ended, and returns the
// exit codes of the latter.
func (n *node) ended(p *bed.Pod) (codes []int32) {
	n.Helper()
	c := n.containerd()
	n.eventually(p.Name+" has ended", func() error {
		pod, err := c.Get(n.ctx, p.ID)
		if err != nil {
			return err
		}
		codes = nil
		for _, x := range pod.Containers {
			if x.State != "exited" {
				return fmt.Errorf("container %s is %s", x.Name, x.State)
			}
			codes = append(codes, x.ExitCode)
		}
		if pod.Ready {
			return fmt.Errorf("its sandbox is ready")
		}
		return nil
	})
	return codes
}

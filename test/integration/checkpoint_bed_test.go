package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// place is where the agent of one test keeps its things.
type place struct{ state, store string }

// newPlace returns directories of the test's own.
func newPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	p := place{filepath.Join(dir, "state"), filepath.Join(dir, "store")}
	p.makeStore(t)
	return p
}

func (p place) makeStore(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "diapause-agent", "make-store", "--store=dir:"+p.store).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// flags are those of an agent there.
func (p place) flags(more ...string) []string {
	return append([]string{"--state-dir=" + p.state, "--store=dir:" + p.store}, more...)
}

// tmpfs mounts a tmpfs of its own on dir until the test ends.
func tmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// resize gives a tmpfs other bounds.
func (n *node) resize(dir, options string) {
	n.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, options); err != nil {
		n.Fatal(err)
	}
}

// record is what the tests read of a record in the agent's journal.
type record struct {
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`
	Stage     string `json:"stage"`
	Stopped   bool   `json:"stopped"`
	Error     string `json:"error"`
}

// journal reads the agent's journal.
func (n *node) journal(at place) (recs []record) {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(at.state, "journal", "*.json"))
	if err != nil {
		n.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			n.Fatal(err)
		}
		var r record
		n.decode(string(b), &r)
		recs = append(recs, r)
	}
	return recs
}

// settled waits until nothing is owed for any request.
func (n *node) settled(at place) {
	n.Helper()
	n.eventually("journal settled", func() error {
		for _, r := range n.journal(at) {
			if r.Stage != "replicated" && r.Stage != "failed" {
				return fmt.Errorf("request %s is %s", r.ID, r.Stage)
			}
		}
		return nil
	})
}

// client returns a client of the agent's local service, for what the command line does not show.
func (n *node) client() localv1.AgentClient {
	n.Helper()
	conn, err := n.bed.DialAgent()
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { conn.Close() })
	return localv1.NewAgentClient(conn)
}

// during asks for a checkpoint, calls do once when it comes to a stage, and returns its error.
func (n *node) during(stage string, req *localv1.CheckpointRequest, do func()) error {
	n.Helper()
	stream, err := n.client().Checkpoint(n.ctx, req)
	if err != nil {
		n.Fatal(err)
	}
	what := "checkpoint " + req.Target
	reached, err := atStage(n, what, stream.Recv, stage, do)
	if !reached {
		n.Errorf("%s did not come to stage %s: %v", what, stage, err)
	}
	return err
}

// atStage follows a request until its end, calls do once when it comes to a stage, and returns its error. Reached says
// that it came to the stage.
func atStage[E interface{ GetProgress() *localv1.Progress }](n *node, what string, recv func() (E, error),
	stage string, do func(),
) (reached bool, err error) {
	n.Helper()
	for {
		e, err := recv()
		if !reached && e.GetProgress().GetStage() == stage {
			reached = true
			do()
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return reached, nil
		}
		n.Logf("%s, at %s: %v", what, stage, err)
		return reached, err
	}
}

func request(p *bed.Pod, stop bool) *localv1.CheckpointRequest {
	r := &localv1.CheckpointRequest{Target: p.ID, After: localv1.AfterMode_AFTER_MODE_LEAVE_RUNNING}
	if stop {
		r.After = localv1.AfterMode_AFTER_MODE_STOP
	}
	return r
}

// duringCapture asks for a checkpoint, calls do in the midst of its capture, when the agent is stopped by SIGSTOP, and
// returns the request's error. It looks from before the request on: a capture is over within some tens of milliseconds.
func (n *node) duringCapture(req *localv1.CheckpointRequest, do func()) error {
	n.Helper()
	client, earlier, ended := n.client(), n.requests(), make(chan error, 1)
	go func() {
		stream, err := client.Checkpoint(n.ctx, req)
		for err == nil {
			_, err = stream.Recv()
		}
		ended <- err
	}()
	n.freezeCapture(func() bool { return !slices.Equal(n.requests(), earlier) }, ended)
	do()
	err := <-ended
	n.Logf("checkpoint %s, ended in its capture: %v", req.Target, err)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// requests lists the requests whose capture the agent has asked for, and those that an earlier agent has left.
func (n *node) requests() (names []string) {
	n.Helper()
	dirs, err := os.ReadDir("/run/diapause/requests")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Fatal(err)
	}
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	return names
}

// freezeCapture stops the agent by SIGSTOP when it has asked for a capture and holds the sandbox's memory.
func (n *node) freezeCapture(asked func() bool, ended chan error) {
	n.Helper()
	defer n.hurry()()
	for !asked() || !n.capturing() {
		select {
		case err := <-ended:
			n.Fatalf("the checkpoint was over before its capture was seen: %v", err)
		default:
		}
		pause := unix.NsecToTimespec(100_000) // of this thread: Go's timers are those of others
		_ = unix.Nanosleep(&pause, nil)
	}
	n.signal(n.agent.PID(), syscall.SIGSTOP)
	if !n.capturing() {
		n.signal(n.agent.PID(), syscall.SIGCONT)
		n.Fatal("the capture was over too soon")
	}
}

// hurry lets this goroutine run before all else on the machine, until the returned function is called.
func (n *node) hurry() (done func()) {
	n.Helper()
	runtime.LockOSThread()
	prefer := func(nice int) {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil { // of the thread
			n.Error(err)
		}
	}
	prefer(-20)
	return func() {
		prefer(0)
		runtime.UnlockOSThread()
	}
}

// freezeSentry, in a duringCapture, stops the sandbox instead of the agent.
func (n *node) freezeSentry(pid int) {
	n.Helper()
	n.signal(pid, syscall.SIGSTOP)
	n.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) }) // a test that failed meanwhile
	n.signal(n.agent.PID(), syscall.SIGCONT)
}

// capturing reports whether the agent holds the memory file of a sandbox.
func (n *node) capturing() bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.agent.PID()))
	if err != nil {
		n.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/memfd:runsc-memory") {
			return true
		}
	}
	return false
}

func (n *node) signal(pid int, s syscall.Signal) {
	n.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		n.Fatal(err)
	}
}

// restartAgent kills the agent and starts another.
func (n *node) restartAgent(flags ...string) {
	n.Helper()
	n.agent.Kill()
	n.startAgent(flags...)
}

// containerd returns a client of the bed's containerd.
func (n *node) containerd() *cri.Client {
	n.Helper()
	c, err := cri.Dial(n.ctx, cri.Options{})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { c.Close() })
	return c
}

// sentry returns the process of a pod's sandbox.
func (n *node) sentry(p *bed.Pod) int {
	n.Helper()
	pod, err := n.containerd().Get(n.ctx, p.ID)
	if err != nil {
		n.Fatal(err)
	}
	return pod.SandboxPID
}

// serving waits until a workload answers and returns its state.
func (n *node) serving(p *bed.Pod) (s answers.State) {
	n.Helper()
	n.eventually(p.Name+" answers", func() error { return n.get(p, "/state", &s) })
	return s
}

// unpaused fails the test unless the pod is soon not paused.
func (n *node) unpaused(p *bed.Pod) {
	n.Helper()
	n.eventually(p.Name+" is not paused", func() error {
		if n.paused(p) {
			return errors.New("paused")
		}
		return nil
	})
}

// unharmed fails the test unless the pod is the same, runs, has its memory, and can be checkpointed.
func (n *node) unharmed(p *bed.Pod, before answers.State) {
	n.Helper()
	n.alive(p, before)
	if s := n.checkpoint(p.ID); !s.OnNode || !s.Replicated {
		n.Errorf("next checkpoint: %+v", s)
	}
}

// alive fails the test unless the pod is the same, runs and has its memory.
func (n *node) alive(p *bed.Pod, before answers.State) {
	n.Helper()
	n.unpaused(p)
	now := n.serving(p)
	n.eventually(p.Name+" goes on", func() error {
		later := n.serving(p)
		if later.Boot != before.Boot || now.Counter < before.Counter {
			n.Fatalf("%s is at %+v, it was at %+v", p.Name, later, before)
		}
		if later.Counter <= now.Counter {
			return fmt.Errorf("its counter stays at %d", now.Counter)
		}
		return nil
	})
	n.verify(p)
}

// verify has the workload look at its memory.
func (n *node) verify(p *bed.Pod) {
	n.Helper()
	var v answers.Memory
	if err := n.get(p, "/verify", &v); err != nil || !v.OK || v.Pages == 0 {
		n.Errorf("memory of %s: %+v, %v", p.Name, v, err)
	}
}

// refused runs the command line and fails the test unless it fails with all the words.
func (n *node) refused(words []string, args ...string) {
	n.Helper()
	_, err := n.cli(args...)
	n.refusedWith(words, fmt.Sprintf("diapause %q", args), err)
}

// refusedWith fails the test unless the error of what was asked for has all the words.
func (n *node) refusedWith(words []string, what string, err error) {
	n.Helper()
	if err == nil {
		n.Errorf("%s succeeded", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			n.Errorf("%s: %q is not in %q", what, w, err)
		}
	}
}

// snapshot returns what "diapause inspect" prints of a snapshot.
func (n *node) snapshot(name string) (s snapshotted) {
	n.Helper()
	n.decode(n.mustCLI("--output=json", "inspect", name), &s)
	return s
}

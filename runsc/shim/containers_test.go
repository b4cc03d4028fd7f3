package shim

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc"
	"diapause.dev/runsc/revive"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// testContainers returns the service of a pod's containers. The sandbox has an empty bundle.
func testContainers(t *testing.T, a agent, p pod, next extension.TaskServiceExt) *containers {
	t.Helper()
	dir := filepath.Join(t.TempDir(), p.sandbox)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return newContainers(new(process), a, p, dir, next)
}

// TestTryOnce: a container cannot be started a second time before the pod is restored. In a sandbox that has loaded
// its memory it would start anew.
func TestTryOnce(t *testing.T) {
	c := testContainers(t, agent{}, pod{sandbox: "x"}, nil)
	for id, name := range map[string]string{"3": "a", "4": "a", "5": "b", "6": "a"} {
		c.roster.add(id, name)
	}
	if err := errors.Join(c.starter.try("1"), c.starter.try("2")); err != nil {
		t.Errorf("a sandbox that is not restored: %v", err)
	}
	if err := c.bundle.order(order{Containers: 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.starter.try("3"); err != nil {
		t.Error(err)
	}
	if err := c.starter.try("4"); err == nil {
		t.Error("a container is started whose start was given up, and the pod is not restored")
	}
	if err := c.starter.try("5"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"3", "5"} {
		if _, err := c.bundle.note(startedPrefix, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.starter.try("6"); err != nil {
		t.Errorf("a container of a restored pod is started again: %v", err)
	}
}

// reports keeps what the shim reports of restores.
type reports struct {
	localv1.UnimplementedShimServer
	all chan *localv1.ReportRestoreRequest
}

func (r reports) ReportRestore(_ context.Context, req *localv1.ReportRestoreRequest) (*localv1.ReportRestoreResponse,
	error,
) {
	r.all <- req
	return &localv1.ReportRestoreResponse{}, nil
}

// TestFailureCountsOnce: a container's start fails, or containerd ends the container before all containers of its pod
// have come, and then deletes it. The sandbox ends, and the agent hears of one failed restore.
func TestFailureCountsOnce(t *testing.T) {
	for _, how := range []string{"killed", "failed"} {
		a := reports{all: make(chan *localv1.ReportRestoreRequest, 3)}
		c := testContainers(t, agentServing(t, a), pod{sandbox: "x-incomplete"}, nil)
		sandbox := exec.Command("sh", "-c", "while :; do sleep 1; done", c.bundle.id)
		if err := sandbox.Start(); err != nil {
			t.Fatal(err)
		}
		defer sandbox.Wait()
		defer sandbox.Process.Kill()
		pid := sandbox.Process.Pid
		if err := errors.Join(c.bundle.order(order{Containers: 2}),
			os.WriteFile(filepath.Join(c.bundle.dir, "init.pid"), []byte(strconv.Itoa(pid)), 0o600)); err != nil {
			t.Fatal(err)
		}
		revive.Await(func() bool { return runsc.IsSandbox(pid, c.bundle.id) }, t.Context().Done())
		if err := sandbox.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if how == "failed" {
			c.progress.failRestore(t.Context(), "a", errors.New("no memory"))
		}
		for range 2 {
			if killed, err := c.progress.killIncomplete(t.Context(), "a"); !killed || err != nil {
				t.Errorf("%s: killed %v, %v", how, killed, err)
			}
		}
		c.progress.pending.of("a").Wait()
		if len(a.all) != 1 {
			t.Errorf("%s: %d failed restores are reported", how, len(a.all))
		}
	}
}

// resumed is a service whose container is paused at first, and runs later.
type resumed struct {
	extension.TaskServiceExt
	fails int // how often it cannot be killed
	kills int
}

func (r *resumed) Kill(context.Context, *task.KillRequest) (*types.Empty, error) {
	if r.kills++; r.kills <= r.fails {
		return nil, errors.New("cannot signal container in state paused")
	}
	return &types.Empty{}, nil
}

func (r *resumed) State(context.Context, *task.StateRequest) (*task.StateResponse, error) {
	return &task.StateResponse{Status: tasktypes.Status_RUNNING}, nil
}

// TestKillResumed kills a container that was paused when runsc tried to, and runs by the time that is known.
func TestKillResumed(t *testing.T) {
	for _, x := range []struct {
		fails, kills int
		signal       unix.Signal
		ok           bool
	}{
		{1, 2, unix.SIGKILL, true},
		{1, 1, unix.SIGTERM, false},
		{99, killTries, unix.SIGKILL, false},
	} {
		service := &resumed{fails: x.fails}
		c := testContainers(t, agent{}, pod{}, service)
		c.roster.add("a", "")
		_, err := c.Kill(t.Context(), &task.KillRequest{ID: "a", Signal: uint32(x.signal)})
		if (err == nil) != x.ok || service.kills != x.kills {
			t.Errorf("%+v: %v, after %d tries", x, err, service.kills)
		}
	}
}

// TestInterruptLate interrupts a start that is failing for another reason. Either the start or Kill must report that
// the container was not started.
func TestInterruptLate(t *testing.T) {
	c := testContainers(t, agent{}, pod{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failing := errors.New("failing")
	c.roster.add("a", "a")
	c.roster.await("a")
	if !c.starter.unstartable("a") {
		t.Error("a container whose sandbox is gone may be started")
	}
	_, err := c.starter.start(ctx, &task.StartRequest{ID: "a"},
		func(context.Context, *task.StartRequest) (*task.StartResponse, error) {
			if !c.starter.cancel("a") || !c.starter.recent.known("a") {
				t.Error("no start is under way")
			}
			return nil, failing
		})
	if !errors.Is(err, errKilled) || !errors.Is(err, failing) {
		t.Error(err)
	}
	if c.starter.cancel("a") || c.starter.recent.known("a") {
		t.Error("a start is known that has failed")
	}
	if c.starter.unstartable("a") {
		t.Error("a restarted containerd would not learn that the container has ended")
	}
}

// connectable answers a containerd that has just started.
type connectable struct{ extension.TaskServiceExt }

func (connectable) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	return &task.ConnectResponse{}, nil
}

// TestConnectWaits: a containerd that has ended while it started a container of a pod that is restored, and has started
// again, gets no answer before the container is removed.
func TestConnectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testContainers(t, agent{}, pod{sandbox: "x"}, connectable{})
		if err := c.bundle.order(order{Containers: 2}); err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		fail, answered := make(chan struct{}), make(chan error, 1)
		go c.starter.start(ctx, &task.StartRequest{ID: "a"},
			func(context.Context, *task.StartRequest) (*task.StartResponse, error) {
				<-fail
				return nil, errors.New("canceled")
			})
		synctest.Wait()
		die()
		go func() {
			_, err := c.Connect(t.Context(), &task.ConnectRequest{ID: "a"})
			answered <- err
		}()
		for _, then := range []func(){
			func() { close(fail) },
			func() {
				c.starter.remove = func(context.Context, string) error { return nil }
				c.starter.removeInterrupted(t.Context(), "a")
			},
		} {
			synctest.Wait()
			if len(answered) > 0 {
				t.Fatal("it was answered before the container was removed")
			}
			then()
		}
		synctest.Wait()
		if len(answered) == 0 || <-answered != nil {
			t.Error("it is not answered once the container is removed")
		}
	})
}

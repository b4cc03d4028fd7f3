package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"diapause.dev/test/privileged"
	cgroups "github.com/containerd/cgroups/v3"
	"github.com/containerd/containerd/api/events"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	containerd "github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	runc "github.com/containerd/go-runc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// TestOneWatch: gVisor's own service watches the cgroup of a sandbox once, however often containers are created in it.
// Containerd nevertheless gets the process of each.
func TestOneWatch(t *testing.T) {
	if cgroups.Mode() != cgroups.Unified {
		privileged.Need(t, "the memory events of a cgroup of version 1")
	}
	pid := os.Getpid()
	bin := t.TempDir()
	create := fmt.Sprintf("#!/bin/sh\nwhile [ $# -gt 0 ]; do\n[ $1 != --pid-file ] || printf %d > $2\nshift\ndone\n", pid)
	if err := os.WriteFile(filepath.Join(bin, runsccmd.DefaultCommand), []byte(create), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ctx, end := shutdown.WithShutdown(namespaces.WithNamespace(t.Context(), "test"))
	defer end.Shutdown()
	heard := &hearing{}
	gvisor, err := runsc.NewTaskService(ctx, heard, end)
	if err != nil {
		t.Fatal(err)
	}
	none := newAgent(filepath.Join(t.TempDir(), "none"))
	x := &routerTest{T: t, dir: t.TempDir(), router: newRouter(new(process), none, gvisor)}
	monitor := runsccmd.Monitor
	runsccmd.Monitor = unwatched{running{}, x.router}
	defer func() { runsccmd.Monitor = monitor }()
	make := func(id, kind string) *task.CreateTaskResponse {
		t.Helper()
		resp, err := x.router.Create(ctx, &task.CreateTaskRequest{ID: id, Bundle: x.write(id, kind, "sandbox")})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	before := watches(t)
	make("sandbox", "sandbox")
	one := watches(t)
	if one != before+1 {
		t.Errorf("the sandbox has %d watches", one-before)
	}
	if file := x.router.kills.file; cgroups.Mode() == cgroups.Unified {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("where kills are counted: %v", err)
		}
	}
	for i := range 5 {
		id := fmt.Sprint("app", i)
		if resp := make(id, "container"); resp.Pid != uint32(pid) {
			t.Errorf("containerd gets process %d", resp.Pid)
		}
		resp, err := x.router.Connect(ctx, &task.ConnectRequest{ID: id})
		if err != nil || resp.TaskPid != uint32(pid) {
			t.Errorf("containerd connects to process %d, %v", resp.GetTaskPid(), err)
		}
	}
	if n := watches(t); n != one {
		t.Errorf("after 5 containers more there are %d watches more", n-one)
	}
}

// watches returns how many watches for the OOM killer this process has: goroutines that each have an inotify instance
// with cgroup v2, event counters with v1.
func watches(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(stacks()), "cgroup2.(*Manager).waitForEvents(")
	for _, f := range all {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name()))
		if err == nil && strings.Contains(to, "[eventfd]") {
			n++
		}
	}
	return n
}

// running runs commands, and reaps nothing else.
type running struct{}

func (running) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	return nil, cmd.Start()
}

func (running) Wait(cmd *exec.Cmd, _ chan runc.Exit) (int, error) {
	err := cmd.Wait()
	return cmd.ProcessState.ExitCode(), err
}

// TestKilledContainers: each container of a pod learns once that the OOM killer has hit, before its end, and of nothing
// that was before its creation.
func TestKilledContainers(t *testing.T) {
	x := newRouterTest(t)
	x.create("sandbox", "sandbox", "sandbox", "")
	file := filepath.Join(t.TempDir(), "memory.events")
	kills := func(n int) {
		t.Helper()
		text := fmt.Sprintf("low 0\noom 7\noom_kill %d\noom_group_kill 9\n", n)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kills(1)
	x.router.kills.file = file
	x.create("app", "container", "sandbox", "")
	heard := &hearing{}
	events := podEvents{heard, func() *router { return x.router }}
	publish := func(event containerd.Event, want ...string) {
		t.Helper()
		heard.all = nil
		if err := events.Publish(t.Context(), "topic", event); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(heard.all, want) {
			t.Errorf("published %q, want %q", heard.all, want)
		}
	}
	publish(oom("sandbox"), "oom sandbox")
	kills(2)
	publish(exit("app", "exec"), "exit exec")
	publish(oom("sandbox"), "oom app", "oom sandbox")
	publish(oom("sandbox"), "oom sandbox")
	publish(exit("app", "app"), "exit app")
	kills(3)
	x.create("late", "container", "sandbox", "")
	publish(exit("app", "app"), "oom app", "exit app")
	publish(exit("late", "late"), "exit late")
	publish(exit("sandbox", "sandbox"), "exit sandbox")
	kills(1) // the cgroup is another one
	publish(exit("late", "late"), "oom late", "exit late")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	publish(exit("late", "late"), "exit late")
	x.remove("late", "")
	x.router.kills.file = "" // cgroup v1, which counts nothing
	publish(oom("sandbox"), "oom app", "oom sandbox")
	publish(exit("app", "app"), "exit app")
}

func oom(id string) containerd.Event { return &events.TaskOOM{ContainerID: id} }

func exit(id, process string) containerd.Event {
	return &events.TaskExit{ContainerID: id, ID: process}
}

// hearing hears of events.
type hearing struct {
	mu  sync.Mutex
	all []string
}

// Publish implements events.Publisher.
func (h *hearing) Publish(_ context.Context, _ string, event containerd.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e := event.(type) {
	case *events.TaskOOM:
		h.all = append(h.all, "oom "+e.ContainerID)
	case *events.TaskExit:
		h.all = append(h.all, "exit "+e.ID)
	}
	return nil
}

// Close implements shim.Publisher.
func (*hearing) Close() error { return nil }

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/lease"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// execOf returns a request to run a command.
func execOf(t *testing.T, change func(*task.ExecProcessRequest), args ...string) *task.ExecProcessRequest {
	t.Helper()
	spec, err := json.Marshal(specs.Process{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	r := &task.ExecProcessRequest{ID: "container", ExecID: "exec", Spec: &anypb.Any{Value: spec}}
	if change != nil {
		change(r)
	}
	return r
}

// TestHostileKindsOf: only the very command of a probe or hook of that container is one, and only without a terminal
// and an input.
func TestHostileKindsOf(t *testing.T) {
	b := bundle{"sandbox", t.TempDir()}
	if b.kindsOf("web", execOf(t, nil, "true")) != (kinds{}) {
		t.Error("a probe although the agent has said nothing")
	}
	if err := b.noteProbes(nil); err != nil {
		t.Error(err)
	}
	err := b.noteProbes([]*localv1.ExecProbe{
		{Container: "web", Command: []string{"cat", "/ready"}},
		{Container: "web", Command: []string{"cat", "/alive"}},
		{Container: "web", Command: []string{"cat", "/ready"}, Kind: localv1.ExecProbe_STARTUP},
		{Container: "web", Command: []string{"begin"}, Kind: localv1.ExecProbe_POST_START},
		{Container: "web", Command: []string{"stop"}, Kind: localv1.ExecProbe_PRE_STOP},
		{Container: "side", Command: []string{"true"}},
		{Container: "", Command: []string{"true"}, Kind: localv1.ExecProbe_POST_START},
		{Container: "other", Command: []string{"cat"}, Kind: 99},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		container string
		change    func(*task.ExecProcessRequest)
		args      []string
		want      kinds
	}{
		{"web", nil, []string{"cat", "/ready"}, kinds{probe: true, startup: true}},
		{"web", nil, []string{"cat", "/alive"}, kinds{probe: true}},
		{"web", nil, []string{"begin"}, kinds{postStart: true}},
		{"web", nil, []string{"stop"}, kinds{preStop: true}},
		{"web", nil, []string{"cat", "/alive", "/ready"}, kinds{}},
		{"web", nil, []string{"cat"}, kinds{}},
		{"web", nil, nil, kinds{}},
		{"web", nil, []string{"true"}, kinds{}},
		{"side", nil, []string{"true"}, kinds{probe: true}},
		{"side", nil, []string{"begin"}, kinds{}},
		{"other", nil, []string{"true"}, kinds{}},
		{"other", nil, []string{"cat"}, kinds{}},
		{"", nil, []string{"true"}, kinds{}},
		{"side", func(r *task.ExecProcessRequest) { r.Terminal = true }, []string{"true"}, kinds{}},
		{"side", func(r *task.ExecProcessRequest) { r.Stdin = "/pipe" }, []string{"true"}, kinds{}},
		{"side", func(r *task.ExecProcessRequest) { r.Spec.Value = []byte("{") }, []string{"true"}, kinds{}},
		{"side", func(r *task.ExecProcessRequest) { r.Spec = nil }, []string{"true"}, kinds{}},
	} {
		if got := b.kindsOf(tc.container, execOf(t, tc.change, tc.args...)); got != tc.want {
			t.Errorf("container %q, %q: %+v", tc.container, tc.args, got)
		}
	}
}

// TestAnswerProbe has a probe of a container that sleeps answered, as containerd asks for it: by Exec, Wait, Start,
// State and Delete.
func TestAnswerProbe(t *testing.T) {
	for _, status := range []uint32{0, 1} {
		t.Run(fmt.Sprint("status ", status), func(t *testing.T) { answersProbe(t, status) })
	}
}

func answersProbe(t *testing.T, status uint32) {
	x := &resident{id: "container"}
	z := newSleepService(t.Context(), nil, testContainers(t, agent{}, pod{}, nil), nil)
	z.all[x.id] = x
	dir := t.TempDir()
	r := execOf(t, func(r *task.ExecProcessRequest) {
		r.Stdout, r.Stderr = filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
	}, "true")
	output := make(chan error, 2)
	for _, name := range []string{r.Stdout, r.Stderr} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		go func() {
			data, err := os.ReadFile(name)
			if len(data) > 0 {
				err = errors.Join(err, io.ErrShortWrite)
			}
			output <- err
		}()
	}
	if _, err := z.probes.Answer(r, status); err != nil {
		t.Fatal(err)
	}
	is := &task.StateRequest{ID: r.ID, ExecID: r.ExecID}
	if s, err := z.State(t.Context(), is); err != nil || s.Status != tasktypes.Status_CREATED {
		t.Errorf("before its start: %v, %v", s, err)
	}
	waited := make(chan *task.WaitResponse, 1)
	go func() {
		resp, err := z.Wait(context.Background(), &task.WaitRequest{ID: r.ID, ExecID: r.ExecID})
		if err != nil {
			t.Error(err)
		}
		waited <- resp
	}()
	if _, err := z.Start(t.Context(), &task.StartRequest{ID: r.ID, ExecID: r.ExecID}); err != nil {
		t.Fatal(err)
	}
	if w := <-waited; w.GetExitStatus() != status || w.GetExitedAt().AsTime().IsZero() {
		t.Errorf("its end: %v", w)
	}
	for range 2 {
		if err := <-output; err != nil {
			t.Errorf("its output: %v", err)
		}
	}
	if s, err := z.State(t.Context(), is); err != nil || s.Status != tasktypes.Status_STOPPED || s.ExitStatus != status {
		t.Errorf("after its start: %v, %v", s, err)
	}
	_, err := z.Kill(t.Context(), &task.KillRequest{ID: r.ID, ExecID: r.ExecID, Signal: 9})
	if !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("a signal for it: %v", err)
	}
	d, err := z.Delete(t.Context(), &task.DeleteRequest{ID: r.ID, ExecID: r.ExecID})
	if err != nil || d.ExitStatus != status || z.probes.Of(r.ID, r.ExecID) != nil {
		t.Errorf("%v, %v, or it is left", d, err)
	}
}

// execs is a service that notes the processes that are added to containers.
type execs struct {
	extension.TaskServiceExt
	ran []string
}

func (e *execs) Exec(_ context.Context, r *task.ExecProcessRequest) (*types.Empty, error) {
	e.ran = append(e.ran, r.ID+" "+r.ExecID)
	return &types.Empty{}, nil
}

// orderedPod returns the service of a pod that is restored as ordered, with containers a and b, both of which have a
// probe, a startup probe and a hook.
func orderedPod(t *testing.T, o order) (*sleepService, *execs) {
	t.Helper()
	c := testContainers(t, agent{}, pod{sandbox: "sandbox"}, nil)
	if err := c.bundle.order(o); err != nil {
		t.Fatal(err)
	}
	var all []*localv1.ExecProbe
	z := newSleepService(t.Context(), new(execs), c, nil)
	for _, name := range []string{"a", "b"} {
		all = append(all, &localv1.ExecProbe{Container: name, Command: []string{"live"}},
			&localv1.ExecProbe{Container: name, Command: []string{"up"}, Kind: localv1.ExecProbe_STARTUP},
			&localv1.ExecProbe{Container: name, Command: []string{"hook"}, Kind: localv1.ExecProbe_POST_START})
		z.all[name] = &resident{id: name, name: name, execs: make(map[string]added)}
	}
	if err := c.bundle.noteProbes(all); err != nil {
		t.Fatal(err)
	}
	return z, z.TaskServiceExt.(*execs)
}

// run runs one command after another in a container, which names them, and returns which of them are answered.
func (z *sleepService) run(t *testing.T, container string, commands ...string) (answered []string) {
	t.Helper()
	for _, name := range commands {
		r := execOf(t, func(r *task.ExecProcessRequest) { r.ID, r.ExecID = container, name }, name)
		if _, err := z.Exec(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if z.probes.Of(container, name) != nil {
			answered = append(answered, name)
		}
		z.probes.Forget(container, name)
	}
	return answered
}

// started has a container start, as containers.Start does.
func (z *sleepService) started(t *testing.T, id string) {
	t.Helper()
	z.c.starter.recent.begin(id, z.c.progress.incomplete())
	if _, err := z.c.bundle.note(startedPrefix, id); err != nil {
		t.Fatal(err)
	}
	z.c.starter.recent.end(id)
}

// TestAnswersWhileRestored: until the last container of a restored pod has come, probes and hooks are answered and
// nothing else. Then a hook is, once for each restored container.
func TestAnswersWhileRestored(t *testing.T) {
	z, ran := orderedPod(t, order{Containers: 2})
	want := func(container string, answered ...string) {
		t.Helper()
		if got := z.run(t, container, "hook", "up", "live", "other"); !slices.Equal(got, answered) {
			t.Errorf("in container %s %q are answered, want %q", container, got, answered)
		}
	}
	z.started(t, "a")
	want("a", "hook", "up", "live")
	want("a", "hook", "up", "live")
	z.started(t, "b")
	want("b", "hook")
	want("b")
	want("a") // its hook was answered before
	z.c.starter.recent.forget("b")
	z.started(t, "b")
	want("b") // it starts anew
	if !slices.Contains(ran.ran, "a other") || slices.Contains(ran.ran[:2], "a hook") {
		t.Errorf("these have run: %q", ran.ran)
	}
}

// TestProbesWhileEnteringSleep: a pod that is to sleep waits for the probes that run in it, and others are answered. If
// something else runs that exec has started, it waits for nothing.
func TestProbesWhileEnteringSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z, ran := orderedPod(t, order{Containers: 2})
		z.started(t, "a")
		z.started(t, "b")
		z.s = &sandbox{lease: new(lease.Lease)}
		z.run(t, "a", "hook", "live")
		z.running = []*resident{z.all["b"], z.all["a"]}
		run := func() bool { return onlyProbes(&z.mu, z.running) }
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			if got := z.run(t, "b", "live"); !slices.Equal(got, []string{"live"}) {
				t.Errorf("while a pod waits for a probe, %q are answered", got)
			}
			z.forget(&task.DeleteRequest{ID: "a", ExecID: "live"})
		}()
		z.probing.begin(t.Context(), run)
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("a probe took 3s, and it was waited for %v", took)
		}
		z.run(t, "a", "other", "live")
		if began = time.Now(); !slices.Equal(ran.ran, []string{"a live", "a other"}) {
			t.Errorf("these have run: %q", ran.ran)
		}
		if z.probing.begin(t.Context(), run); time.Since(began) > 0 {
			t.Errorf("a session is waited for, for %v", time.Since(began))
		}
		time.Sleep(enteringLimit) // the agent has died
		if got := z.run(t, "b", "live"); len(got) > 0 {
			t.Errorf("of a pod that stays awake, %q are answered", got)
		}
		began = time.Now()
		z.forget(&task.DeleteRequest{ID: "a", ExecID: "other"})
		if z.probing.begin(t.Context(), run); time.Since(began) < probeLimit {
			t.Errorf("a probe that does not end is waited for %v", time.Since(began))
		}
	})
}

// TestHooksOfFiles: in a pod of which only files are restored, all that the kubelet wants to run runs.
func TestHooksOfFiles(t *testing.T) {
	z, _ := orderedPod(t, order{Containers: 2, Rootfs: true})
	z.started(t, "a")
	if got := z.run(t, "a", "hook", "up", "live"); len(got) > 0 {
		t.Errorf("%q are answered", got)
	}
}

// TestHostileHookLate: a process that runs what a hook does, long after the container's start, is no hook. What is
// answered and never deleted is bounded.
func TestHostileHookLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s recentStarts
		if s.takeHook("a") {
			t.Error("a hook of a container that was not started")
		}
		s.begin("a", true)
		s.end("a")
		time.Sleep(hookTime + time.Second)
		if s.takeHook("a") {
			t.Error("a hook that came too late")
		}
	})
}

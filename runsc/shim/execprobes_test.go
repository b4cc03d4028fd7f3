package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
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

// TestIsProbe: only the very command of a probe of that container is one, and only without a terminal and an input.
func TestIsProbe(t *testing.T) {
	b := bundle{"sandbox", t.TempDir()}
	if b.isProbe("web", execOf(t, nil, "true")) {
		t.Error("a probe although the agent has said nothing")
	}
	if err := b.noteProbes(nil); err != nil {
		t.Error(err)
	}
	err := b.noteProbes([]*localv1.ExecProbe{
		{Container: "web", Command: []string{"cat", "/ready"}},
		{Container: "web", Command: []string{"cat", "/alive"}},
		{Container: "side", Command: []string{"true"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		container string
		change    func(*task.ExecProcessRequest)
		args      []string
		want      bool
	}{
		{"web", nil, []string{"cat", "/ready"}, true},
		{"web", nil, []string{"cat", "/alive"}, true},
		{"web", nil, []string{"cat", "/alive", "/ready"}, false},
		{"web", nil, []string{"cat"}, false},
		{"web", nil, nil, false},
		{"web", nil, []string{"true"}, false},
		{"side", nil, []string{"true"}, true},
		{"other", nil, []string{"true"}, false},
		{"", nil, []string{"true"}, false},
		{"side", func(r *task.ExecProcessRequest) { r.Terminal = true }, []string{"true"}, false},
		{"side", func(r *task.ExecProcessRequest) { r.Stdin = "/pipe" }, []string{"true"}, false},
		{"side", func(r *task.ExecProcessRequest) { r.Spec.Value = []byte("{") }, []string{"true"}, false},
		{"side", func(r *task.ExecProcessRequest) { r.Spec = nil }, []string{"true"}, false},
	} {
		if got := b.isProbe(tc.container, execOf(t, tc.change, tc.args...)); got != tc.want {
			t.Errorf("container %q, %q: %v", tc.container, tc.args, got)
		}
	}
}

// TestAnswerProbe has a probe of a container that sleeps answered, as containerd asks for it: by Exec, Wait, Start,
// State and Delete.
func TestAnswerProbe(t *testing.T) {
	x := &resident{id: "container"}
	z := &sleeper{all: map[string]*resident{x.id: x}}
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
	z.answerProbe(x, r)
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
	if w := <-waited; w.GetExitStatus() != 0 || w.GetExitedAt().AsTime().IsZero() {
		t.Errorf("its end: %v", w)
	}
	for range 2 {
		if err := <-output; err != nil {
			t.Errorf("its output: %v", err)
		}
	}
	if s, err := z.State(t.Context(), is); err != nil || s.Status != tasktypes.Status_STOPPED || s.ExitStatus != 0 {
		t.Errorf("after its start: %v, %v", s, err)
	}
	_, err := z.Kill(t.Context(), &task.KillRequest{ID: r.ID, ExecID: r.ExecID, Signal: 9})
	if !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("a signal for it: %v", err)
	}
	d, err := z.Delete(t.Context(), &task.DeleteRequest{ID: r.ID, ExecID: r.ExecID})
	if err != nil || d.ExitStatus != 0 || len(x.probes) > 0 {
		t.Errorf("%v, %v, %d left", d, err, len(x.probes))
	}
}

// TestHostilePipes: a pipe that nobody reads is waited for no longer than its limit.
func TestHostilePipes(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := closePipe(done, name); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody reads: %v", err)
	}
	if err := closePipe(t.Context(), name+"s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no pipe: %v", err)
	}
	if err := closePipe(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

package idle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// self is a Runtime with one pod, whose sandbox is this process.
type self struct{ pod cri.Pod }

func (s self) Find(context.Context, string) (*cri.Pod, error) { return &s.pod, nil }

func kernelOf(pod cri.Pod) Kernel {
	return Kernel{Runtime: self{pod}, Busy: func(sandbox string) bool { return sandbox == "busy" }}
}

// TestKernel reads the real counters of this process.
func TestKernel(t *testing.T) {
	pod := cri.Pod{ID: "busy", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(t.Context(), someone)
	if err != nil {
		t.Fatal(err)
	}
	u, err := g.Read()
	if err != nil && !errors.Is(err, errNoInterface) || u.CPU <= 0 || !g.Busy() {
		t.Errorf("%+v, busy %v, %v", u, g.Busy(), err)
	}
	if !u.Session.IsZero() {
		t.Errorf("a session at %v", u.Session)
	}
}

// TestKernelSession reads when a shim has said that the pod is used. What is said of pods that are gone is removed.
func TestKernelSession(t *testing.T) {
	pod := cri.Pod{ID: "here", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	k := kernelOf(pod)
	k.Used = t.TempDir()
	g, err := k.Open(t.Context(), someone)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for _, name := range []string{"here", "gone"} {
		file := filepath.Join(k.Used, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(k.Used, map[string]bool{"here": true}); err != nil {
		t.Error(err)
	}
	u, err := g.Read()
	if err != nil && !errors.Is(err, errNoInterface) || !u.Session.Equal(at) {
		t.Errorf("%+v, %v, want a session at %v", u, err, at)
	}
	if left, err := os.ReadDir(k.Used); len(left) != 1 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestKernelOfNoSandbox(t *testing.T) {
	pod := cri.Pod{ID: "a", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	for name, tc := range map[string]struct {
		change func(*cri.Pod)
		want   error
	}{
		"another pod":     {func(p *cri.Pod) { p.UID = "other" }, errNoSandbox},
		"another runtime": {func(p *cri.Pod) { p.Runtime = "io.containerd.runc.v2" }, ErrNever},
		"no sandbox":      {func(p *cri.Pod) { p.SandboxPID = 0 }, errNoSandbox},
	} {
		p := pod
		tc.change(&p)
		if _, err := kernelOf(p).Open(t.Context(), snapshot.PodRef{UID: someone.UID}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkRead is what a second costs for each pod that is awake.
func BenchmarkRead(b *testing.B) {
	pod := cri.Pod{UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(b.Context(), someone)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := g.Read(); err != nil && !errors.Is(err, errNoInterface) {
			b.Fatal(err)
		}
	}
}

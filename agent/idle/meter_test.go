package idle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
)

// self is a Runtime with one pod, whose sandbox is this process. Its shim takes one order.
type self struct {
	pod   cri.Pod
	order func(id string, o sleep.Order) error
}

func (s self) Find(context.Context, string) (*cri.Pod, error) { return &s.pod, nil }

func (s self) OrderSleep(_ context.Context, id string, o sleep.Order) error { return s.order(id, o) }

func kernelOf(pod cri.Pod) Kernel {
	return Kernel{Runtime: self{pod: pod}, Busy: func(sandbox string) bool { return sandbox == "busy" }}
}

// TestKernel reads the real counters of this process.
func TestKernel(t *testing.T) {
	pod := cri.Pod{ID: "busy", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(t.Context(), someone, nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := g.Read()
	if err != nil || u.CPU <= 0 || !g.Busy() {
		t.Errorf("%+v, busy %v, %v", u, g.Busy(), err)
	}
	if !u.Session.IsZero() {
		t.Errorf("a session at %v", u.Session)
	}
}

// TestKernelSession reads when a shim has said that the pod is used.
func TestKernelSession(t *testing.T) {
	pod := cri.Pod{ID: "here", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	k := kernelOf(pod)
	k.Used = t.TempDir()
	g, err := k.Open(t.Context(), someone, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	file := filepath.Join(k.Used, "here")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at)); err != nil {
		t.Fatal(err)
	}
	u, err := g.Read()
	if err != nil || !u.Session.Equal(at) {
		t.Errorf("%+v, %v, want a session at %v", u, err, at)
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
		if _, err := kernelOf(p).Open(t.Context(), snapshot.PodRef{UID: someone.UID}, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKernelIgnores reads what a shim has counted that is told what to ignore. It may refuse.
func TestKernelIgnores(t *testing.T) {
	pod := cri.Pod{ID: "here", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	k := Kernel{Used: t.TempDir()}
	ignored := []traffic.Ignored{{Port: 9090}}
	k.Runtime = self{pod, func(id string, o sleep.Order) error {
		written := map[sleep.Verb]string{sleep.Count: "42", sleep.Senders: `[{"Protocol": "UDP", "Port": 53, "Packets": 7}]`}
		file := map[sleep.Verb]string{sleep.Count: "here.packets", sleep.Senders: "here.senders"}[o.Verb]
		if id != "here" || file == "" || !slices.Equal(o.Ignored, ignored) {
			t.Fatalf("pod %s: %s", id, o)
		}
		return os.WriteFile(filepath.Join(k.Used, file), []byte(written[o.Verb]), 0o600)
	}}
	g, err := k.Open(t.Context(), someone, ignored)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := g.Read(); err != nil || u.Received != 42 {
		t.Errorf("%+v, %v", u, err)
	}
	if all, err := g.Senders(t.Context()); err != nil || len(all) != 1 || all[0].Port != 53 || all[0].Packets != 7 {
		t.Errorf("senders %+v, %v", all, err)
	}
	var got sleep.Order
	answer := fmt.Errorf("%w: by port 80", sleep.ErrTraffic)
	k.Runtime = self{pod, func(_ string, o sleep.Order) error {
		if got = o; o.Verb == sleep.Count {
			return os.WriteFile(filepath.Join(k.Used, "here.packets"), []byte("42"), 0o600)
		}
		return answer
	}}
	if g, err = k.Open(t.Context(), someone, ignored); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		owes, err := g.Owes(t.Context(), time.Minute)
		if owes != want || err != nil || got.Verb != sleep.Answers || got.AnswerWithin != time.Minute ||
			!slices.Equal(got.Ignored, ignored) {
			t.Errorf("owes %v, %v: %s", owes, err, got)
		}
		answer = nil
	}
	k.Runtime = self{pod, func(string, sleep.Order) error { return sleep.ErrInvalid }}
	if _, err := k.Open(t.Context(), someone, ignored); !errors.Is(err, sleep.ErrInvalid) {
		t.Errorf("a shim that refuses: %v", err)
	}
}

// TestCheckInterface: a network with only a loopback is none.
func TestCheckInterface(t *testing.T) {
	const title = "Inter-|   Receive\n face |bytes    packets errs\n"
	for text, want := range map[string]error{
		title + "    lo:       0       0\n":                        errNoInterface,
		title + "    lo:       0       0\n  eth0:    74       1\n": nil,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "dev"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkInterface(dir); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// BenchmarkRead is what a second costs for each pod that is awake.
func BenchmarkRead(b *testing.B) {
	pod := cri.Pod{UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(b.Context(), someone, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := g.Read(); err != nil {
			b.Fatal(err)
		}
	}
}

package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc"
	"diapause.dev/runsc/revive"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestPodOf(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        pod
		named       bool
		strict      bool
	}{
		{name: "no pod"},
		{
			name:        "sandbox of containerd",
			annotations: map[string]string{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "x"},
			want:        pod{sandbox: "x", isSandbox: true},
		},
		{
			name:        "container of containerd",
			annotations: map[string]string{"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "x"},
			want:        pod{sandbox: "x"},
		},
		{
			name:        "sandbox of CRI-O",
			annotations: map[string]string{"io.kubernetes.cri-o.ContainerType": "sandbox", "io.kubernetes.cri-o.SandboxID": "x"},
			want:        pod{sandbox: "x", isSandbox: true},
		},
		{name: "restore from", annotations: map[string]string{annotationRestoreFrom: "a/b"}, named: true},
		{
			name: "snapshot name", annotations: map[string]string{annotationSnapshot: "b", annotationOnFailure: "Fail"},
			named: true, strict: true,
		},
		{name: "cold start", annotations: map[string]string{annotationOnFailure: "ColdStart"}},
		{name: "an unknown value", annotations: map[string]string{annotationOnFailure: "fail"}, strict: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.annotations)
			if p.sandbox != tc.want.sandbox || p.isSandbox != tc.want.isSandbox || p.named() != tc.named ||
				p.strict() != tc.strict {
				t.Errorf("%+v, named %v, strict %v", p, p.named(), p.strict())
			}
		})
	}
}

// TestUnansweredStrict: without an answer of the agent, a pod whose annotation has an unknown value does not start, and
// the error says which values there are.
func TestUnansweredStrict(t *testing.T) {
	for value, starts := range map[string]bool{"ColdStart": true, "Fail": false, "coldstart": false} {
		s := &sandbox{containers: testContainers(t, agent{}, podOf(map[string]string{annotationOnFailure: value}), nil)}
		err := s.settle(answer{err: errors.New("no agent")})
		if starts != (err == nil) || err != nil && !strings.Contains(err.Error(),
			fmt.Sprintf("diapause.dev/on-restore-failure is %q (values: Fail and ColdStart; another counts as Fail)", value)) {
			t.Errorf("value %q: %v", value, err)
		}
	}
}

func TestReadPodRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := readPod(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no spec: %v", err)
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPod(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a spec: %v", err)
	}
}

func TestReadPodNetwork(t *testing.T) {
	for spec, want := range map[string]string{
		`{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/x"}]}}`: "/run/netns/x",
		`{"linux":{"namespaces":[{"type":"network"}]}}`:                                      "", // made by runsc
		`{"linux":{"namespaces":[{"type":"ipc","path":"/proc/1/ns/ipc"}]}}`:                  "", // the host's
		`{}`: "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := readPod(dir); err != nil || p.network != want {
			t.Errorf("%s: %q, %v", spec, p.network, err)
		}
	}
}

func TestTranslated(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "sandbox")
	if got := translated(internalError, marker); got != internalError {
		t.Errorf("without a marker: %d", got)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]int{0: 0, 1: 1, internalError: statusKilled, statusKilled: statusKilled} {
		if got := translated(status, marker); got != want {
			t.Errorf("status %d: %d, want %d", status, got, want)
		}
	}
	if err := os.WriteFile(marker, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := translated(internalError, marker); got != 0 {
		t.Errorf("with a marker that says 0: %d", got)
	}
}

func TestUntraced(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain",
		`unable to checkpoint: "/x/runsc" did not terminate successfully: checkpoint failed`: "checkpoint failed",
		"load: EOF:\ngoroutine 342 [running]:\nmain()":                                       "load: EOF",
		`load: no host FD available for "app:host:0", map: map[checkpoint.ResourceID]int{` +
			`checkpoint.ResourceID{ContainerName:"app", Path:"/"}:12}`: `load: no host FD available for "app:host:0"`,
		strings.Repeat("a", 400) + strings.Repeat("b", 400): strings.Repeat("a", 300) + " [...] " + strings.Repeat("b", 300),
	} {
		if got := trimStack(errors.New(in)).Error(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long := fmt.Errorf("%s: %w", strings.Repeat("a", 700), errdefs.ErrNotFound)
	if err := trimStack(long); !errdefs.IsNotFound(err) {
		t.Errorf("its kind is lost: %v", err)
	}
}

func TestBundle(t *testing.T) {
	b := bundle{"x", t.TempDir()}
	if _, ok := b.ordered(); ok {
		t.Error("ordered before")
	}
	if err := b.order(order{
		Request: "r1", Containers: 2, Ended: []string{"init", "../x"},
		ExitCodes: map[string]int32{"../x": 3},
	}); err != nil {
		t.Fatal(err)
	}
	if o, ok := b.ordered(); !ok || o.Request != "r1" {
		t.Errorf("ordered %+v, %v", o, ok)
	}
	for _, tc := range []struct {
		name   string
		status uint32
		ended  bool
	}{{"init", 0, true}, {"init", 0, false}, {"app", 0, false}, {"", 0, false}, {"../x", 3, true}, {"../x", 3, false}} {
		if status, ended, err := b.endedIn(tc.name); ended != tc.ended || ended && status != tc.status || err != nil {
			t.Errorf("container %q has ended: %v, with %d, %v", tc.name, ended, status, err)
		}
	}
	for i, id := range []string{"a", "b", "b"} {
		if n, err := b.note(startedPrefix, id); err != nil || n != []int{1, 2, 0}[i] {
			t.Errorf("%s: %d have started, %v", id, n, err)
		}
	}
	if n, err := b.noted(startedPrefix); err != nil || n != 2 {
		t.Errorf("%d have started, %v", n, err)
	}
	if n, err := b.note(loadedPrefix, "a"); err != nil || n != 1 {
		t.Errorf("%d have their files, %v", n, err)
	}
	if _, ok := (bundle{"", b.dir}).ordered(); ok {
		t.Error("a container of no pod is ordered")
	}
	if err := b.kill(); err != nil {
		t.Errorf("a sandbox without a process: %v", err)
	}
	for _, pid := range []string{"x", "-1", ""} {
		if err := os.WriteFile(filepath.Join(b.dir, "init.pid"), []byte(pid), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.kill(); err == nil {
			t.Errorf("process %q is killed", pid)
		}
	}
}

// TestHalt stops a process that is busy, and has it go on.
func TestHalt(t *testing.T) {
	const id = "halted"
	b := bundle{id, t.TempDir()}
	if err := b.halt(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a sandbox without a process: %v", err)
	}
	cmd := exec.Command("sh", "-c", "while :; do :; done", id)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	if err := os.WriteFile(filepath.Join(b.dir, "init.pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	other := bundle{"another", b.dir}
	if err := other.halt(t.Context()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("another process: %v", err)
	}
	revive.Await(func() bool { return runsc.IsSandbox(pid, id) }, t.Context().Done()) // it may not have its arguments yet
	for range 20 {
		if err := b.halt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stopped, err := allStopped(pid); err != nil || !stopped {
			t.Errorf("stopped: %v, %v", stopped, err)
		}
		if err := b.signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if stopped, err := allStopped(pid); err != nil || stopped {
			t.Errorf("goes on, stopped: %v, %v", stopped, err)
		}
	}
}

// TestAskNobody: the shim does not wait if there is no agent, unless the pod is to be restored.
func TestAskNobody(t *testing.T) {
	a := newAgent(filepath.Join(t.TempDir(), "agent.sock"))
	if _, err := a.ask(t.Context(), pod{}, &localv1.AskRestoreRequest{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err) // after a wait the error would be another one
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	p := pod{annotations: map[string]string{annotationRestoreFrom: "a/b"}}
	if _, err := a.ask(ctx, p, &localv1.AskRestoreRequest{}); err == nil ||
		!strings.Contains(err.Error(), "no answer within") || !strings.Contains(err.Error(), a.socket) {
		t.Errorf("error %v", err)
	}
}

func anyVolume(string) bool { return true }

func TestAnnotate(t *testing.T) {
	const path = "dev.gvisor.internal.checkpoint.path"
	for _, tc := range []struct{ name, spec, want string }{
		{"none", `{"b": [1, 2.50], "a": "x"}`, `{"b": [1, 2.50], "a": "x"}`},
		{"harmless", `{"annotations": {"x": "y"}, "a": 1}`, `{"annotations": {"x": "y"}, "a": 1}`},
		{
			"a place on the node", `{"annotations": {"x": "y", "` + path + `": "/etc"}, "n": 1.50}`,
			`{"annotations":{"x":"y"},"n":1.50}`,
		},
		{
			"all that is forbidden", `{"annotations": {"dev.gvisor.internal.fscheckpoint.path": "/", ` +
				`"dev.gvisor.internal.fscheckpoint.paths": "/", "dev.gvisor.internal.fscheckpoint.enable": "true", ` +
				`"dev.gvisor.internal.checkpoint.resume": "", "dev.gvisor.internal.checkpoint.enable": "true"}}`,
			`{"annotations":{"dev.gvisor.internal.checkpoint.enable":"true","dev.gvisor.internal.fscheckpoint.enable":"true"}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "config.json")
			if err := os.WriteFile(file, []byte(tc.spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := annotate(dir, nil, anyVolume); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
			if _, err := annotate(dir, map[string]string{path: "/ours"}, anyVolume); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || !strings.Contains(string(got), `"`+path+`":"/ours"`) {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	if _, err := annotate(t.TempDir(), nil, anyVolume); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no spec: %v", err)
	}
}

func TestPodOwnsItsCgroups(t *testing.T) {
	p := pod{sandbox: "0123abcd", uid: "6ba7b810-9dad"}
	for dir, want := range map[string]bool{
		"/sys/fs/cgroup/memory/kubepods/burstable/pod6ba7b810-9dad":                            true,
		"/sys/fs/cgroup/kubepods.slice/kubepods-burstable-pod6ba7b810_9dad.slice":              true,
		"/sys/fs/cgroup/memory/k8s.io/0123abcd":                                                true,
		"/sys/fs/cgroup/kubepods.slice/x-pod6ba7b810_9dad.slice/cri-containerd-0123abcd.scope": true,
		"/sys/fs/cgroup/memory/kubepods/burstable":                                             false,
		"/sys/fs/cgroup/system.slice/containerd.service":                                       false,
		"/sys/fs/cgroup/memory/kubepods/pod6ba7b810-0000":                                      false,
	} {
		if got := p.owns(dir); got != want {
			t.Errorf("owns %s: %v, want %v", dir, got, want)
		}
	}
	if (pod{}).owns("/sys/fs/cgroup/memory/k8s.io/x") {
		t.Error("a pod without a name owns a cgroup")
	}
}

// Package integration tests package cri with a real containerd and real pods.
package integration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

var (
	node   *bed.Bed
	client *cri.Client
)

func TestMain(m *testing.M) {
	bed.MainShared(m, func(ctx context.Context, b *bed.Bed) (err error) {
		node = b
		client, err = cri.Dial(ctx, cri.Options{})
		return err
	})
}

// limited returns the test's context with a deadline, so that a hang fails the test that hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// runPod runs a pod and removes it when the test ends.
func runPod(t *testing.T, s bed.PodSpec) *bed.Pod {
	t.Helper()
	pod, err := node.RunPod(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removePod(t, pod.ID) })
	return pod
}

func removePod(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := client.RemovePod(ctx, id); err != nil {
		t.Error(err)
	}
}

// TestRemoveEnding: a container whose shim has just been killed counts as running for containerd, which cannot stop it
// any more, and refuses to remove it. It is removed all the same.
func TestRemoveEnding(t *testing.T) {
	pod := runPod(t, bed.PodSpec{Name: "ending"})
	id := pod.Containers[0].ID
	pids, err := bed.Shims(pod.ID)
	if err != nil || len(pids) != 1 {
		t.Fatalf("%d shims serve the pod, want 1, %v", len(pids), err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := client.RemoveContainer(limited(t), id); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	ctx := limited(t)
	pod := runPod(t, bed.PodSpec{Name: "web", Annotations: map[string]string{"diapause.dev/x": "y"}})
	twin := runPod(t, bed.PodSpec{Name: "web", Namespace: "other"})
	plain := runPod(t, bed.PodSpec{Name: "plain", Handler: bed.Runc})
	for _, target := range []string{"default/web", pod.ID, pod.ID[:12], pod.Containers[0].ID, pod.Containers[0].ID[:12]} {
		p, err := client.Find(ctx, target)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.ID != pod.ID || p.UID != pod.UID || p.Name != "web" || p.Namespace != "default" || !p.Ready || p.IP != pod.IP ||
			p.Runtime != cri.RuntimeType || p.Handler != bed.Diapause || p.SandboxPID == 0 ||
			p.Annotations["diapause.dev/x"] != "y" ||
			len(p.Containers) != 1 || p.Containers[0].State != cri.StateRunning || p.Containers[0].ID != pod.Containers[0].ID {
			t.Errorf("%s: %+v", target, p)
		}
	}
	if _, err := client.Find(ctx, "web"); !errors.Is(err, cri.ErrAmbiguous) ||
		!strings.Contains(err.Error(), "other/web") {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := client.Find(ctx, "nobody"); !errors.Is(err, cri.ErrNotFound) {
		t.Errorf("no such pod: %v", err)
	}
	if p, err := client.Find(ctx, "plain"); err != nil || !errors.Is(p.CheckRuntime(), cri.ErrOtherRuntime) {
		t.Errorf("a pod of runc: %v, %v", p, err)
	}
	if _, err := client.Get(ctx, pod.ID[:12]); !errors.Is(err, cri.ErrNotFound) {
		t.Errorf("Get with a short id: %v", err)
	}
	pods, err := client.Pods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range pods {
		ids = append(ids, p.ID)
	}
	if want := []string{plain.ID, twin.ID, pod.ID}; !slices.Equal(ids, want) {
		t.Errorf("pods %v, want %v", ids, want)
	}
}

func TestUnknown(t *testing.T) {
	ctx, id := limited(t), strings.Repeat("0", 64)
	_, paused := client.Paused(ctx, id)
	_, record := client.Record(ctx, id)
	for what, err := range map[string]error{
		"checkpoint": client.Checkpoint(ctx, id, "/tmp/x"), "pause": client.Pause(ctx, id), "resume": client.Resume(ctx, id),
		"paused": paused, "record": record,
	} {
		if !errors.Is(err, cri.ErrNotFound) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(client.RemovePod(ctx, id), client.Kill(ctx, &cri.Pod{ID: id})); err != nil {
		t.Error(err)
	}
}

func TestPauseAndExit(t *testing.T) {
	ctx := limited(t)
	pod := runPod(t, bed.PodSpec{Name: "web"})
	for _, want := range []bool{true, false} {
		change := client.Resume
		if want {
			change = client.Pause
		}
		if err := change(ctx, pod.ID); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Paused(ctx, pod.ID); err != nil || got != want {
			t.Errorf("paused: %v, %v, want %v", got, err, want)
		}
	}
	p, err := client.Get(ctx, pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Kill(ctx, p); err != nil {
		t.Error(err)
	}
	if _, err := client.Record(ctx, pod.ID); !errors.Is(err, cri.ErrNotRunning) {
		t.Errorf("record of a killed pod: %v", err)
	}
	if p, err := client.Find(ctx, "web"); err != nil || p.Ready || p.SandboxPID != 0 ||
		p.Containers[0].State != cri.StateExited {
		t.Errorf("a killed pod: %+v, %v", p, err)
	}
}

// TestSlowShim asks for something that a shim takes longer to answer than containerd waits.
func TestSlowShim(t *testing.T) {
	ctx := limited(t)
	pod := runPod(t, bed.PodSpec{Name: "web"})
	if err := client.Pause(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	p, err := client.Get(ctx, pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	app := p.Containers[0].ID
	for _, x := range []struct {
		what, of string // the shim of that sandbox is slow
		ask      func() (bool, error)
	}{
		{"paused", pod.ID, func() (bool, error) { return client.Paused(ctx, pod.ID) }},
		{"running", pod.ID, func() (bool, error) {
			ids, err := client.Running(ctx, pod.ID)
			return slices.Equal(ids, []string{app}), err
		}},
		{"process", pod.ID, func() (bool, error) {
			got, err := client.Get(ctx, pod.ID)
			return err == nil && got.SandboxPID == p.SandboxPID, err
		}},
		{"record", pod.ID, func() (bool, error) {
			got, err := client.Record(ctx, pod.ID)
			return len(got.Containers) == 1, err
		}},
	} {
		t.Run(x.what, func(t *testing.T) {
			if err := bed.SlowShim(x.of); err != nil {
				t.Fatal(err)
			}
			if ok, err := x.ask(); err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
	if err := client.Resume(ctx, pod.ID); err != nil {
		t.Error(err)
	}
}

// TestContainerdRestarts: a call waits for a containerd that restarts. It does not wait for ever.
func TestContainerdRestarts(t *testing.T) {
	ctx := limited(t)
	node.Containerd.Kill()
	if _, err := client.IDs(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("without containerd: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := client.IDs(ctx)
		answered <- err
	}()
	if err := node.Containerd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("a call that was made before containerd was back: %v", err)
	}
	if _, err := client.IDs(ctx); err != nil {
		t.Errorf("once it was back: %v", err)
	}
}

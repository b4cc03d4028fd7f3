package shim

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
)

// TestTryOnce: a container cannot be started a second time before the pod is restored. In a sandbox that has loaded
// its memory it would start anew.
func TestTryOnce(t *testing.T) {
	c := newContainers(agent{}, pod{sandbox: "x", container: "a"}, filepath.Join(t.TempDir(), "x"), nil)
	c.bundle.dir = t.TempDir()
	if err := errors.Join(c.try("1"), c.try("2")); err != nil {
		t.Errorf("a sandbox that is not restored: %v", err)
	}
	if err := c.bundle.order(order{Containers: 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.try("3"); err != nil {
		t.Error(err)
	}
	if err := c.try("4"); err == nil {
		t.Error("a container is started whose start was given up, and the pod is not restored")
	}
	b := newContainers(agent{}, pod{sandbox: "x", container: "b"}, c.dir, nil)
	b.bundle = c.bundle
	if err := b.try("5"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"3", "5"} {
		if _, err := c.bundle.note(startedPrefix, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.try("6"); err != nil {
		t.Errorf("a container of a restored pod is started again: %v", err)
	}
}

// TestInterruptLate interrupts a start that is failing for another reason. Either the start or Kill must report that
// the container was not started.
func TestInterruptLate(t *testing.T) {
	c := newContainers(agent{}, pod{}, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failing := errors.New("failing")
	if !c.unstartable() {
		t.Error("a container whose sandbox is gone may be started")
	}
	_, err := c.start(ctx, &task.StartRequest{ID: "a"},
		func(context.Context, *task.StartRequest) (*task.StartResponse, error) {
			if !c.interrupt("a") || !c.starts.known("a") {
				t.Error("no start is under way")
			}
			return nil, failing
		})
	if !errors.Is(err, errKilled) || !errors.Is(err, failing) {
		t.Error(err)
	}
	if c.interrupt("a") || c.starts.known("a") {
		t.Error("a start is known that has failed")
	}
	if c.unstartable() {
		t.Error("a restarted containerd would not learn that the container has ended")
	}
}

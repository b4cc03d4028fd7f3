package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"diapause.dev/cri"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"diapause.dev/test/bed"
)

// rawTasks returns containerd's task service, for requests that package cri never makes.
func rawTasks(t *testing.T) tasks.TasksClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+bed.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tasks.NewTasksClient(conn)
}

func TestCheckpointRefuses(t *testing.T) {
	pod := runPod(t, spec("refuse", nil))
	raw := rawTasks(t)
	any := func(v any) *anypb.Any {
		a, err := typeurl.MarshalAnyToProto(v)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, tc := range []struct {
		name, id string
		options  *anypb.Any
		want     string
	}{
		{"no options", pod.ID, nil, "no options"},
		{"no path", pod.ID, any(&options.CheckpointOptions{WorkPath: "/x"}), "not absolute"},
		{"relative path", pod.ID, any(&options.CheckpointOptions{ImagePath: "x/y"}), "not absolute"},
		{"exit", pod.ID, any(&options.CheckpointOptions{ImagePath: "/tmp/x", Exit: true}), "leaves the sandbox running"},
		{"container", pod.Container("a"), any(&options.CheckpointOptions{ImagePath: "/tmp/x"}), "sandbox container"},
		// The text is runsc's: the path cannot be made into a directory.
		{"runsc fails", pod.ID, any(&options.CheckpointOptions{ImagePath: "/proc/version"}), "/proc/version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := namespaces.WithNamespace(limited(t), cri.DefaultNamespace)
			_, err := raw.Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: tc.id, Options: tc.options})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			t.Log(err)
		})
	}
	wantRunning(t, pod.Container("a"))
}

// wantRunning waits until a container counts on, and returns its identity.
func wantRunning(t *testing.T, container string) (boot string) {
	t.Helper()
	boot, n := state(t, container)
	err := bed.Until(limited(t), func() error {
		again, later, err := readState(t, container)
		if err == nil && (again != boot || later <= n) {
			err = fmt.Errorf("it does not run on: %s at %d, then %s at %d", boot, n, again, later)
		}
		return err
	})
	if err != nil {
		t.Errorf("container %s: %v", container, err)
	}
	return boot
}

// TestCheckpointsAtOnce makes two checkpoints at a time, and sends other requests meanwhile.
func TestCheckpointsAtOnce(t *testing.T) {
	pod := runPod(t, spec("twice", nil))
	g, ctx := errgroup.WithContext(limited(t))
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		g.Go(func() error { return client.Checkpoint(ctx, pod.ID, dir) })
	}
	g.Go(func() error {
		for range 3 {
			if _, err := client.Get(ctx, pod.ID); err != nil {
				return err
			}
			if _, _, err := node.Exec(ctx, pod.Container("b"), "true"); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		for _, file := range []string{"checkpoint.img", "pages.img", "pages_meta.img"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCheckpointPaused saves a paused pod, which stays paused. The pod restored from it runs.
func TestCheckpointPaused(t *testing.T) {
	pod := runPod(t, spec("paused", nil))
	boot, _ := state(t, pod.Container("a"))
	ctx := limited(t)
	if err := client.Pause(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	dir := checkpoint(t, pod)
	wantPaused(ctx, t, pod.ID, true)
	if err := client.Resume(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	wantPaused(ctx, t, pod.ID, false)
	startAgent(t, decide(restoreFrom(dir)))
	branch := runPod(t, spec("awake", nil))
	if got := wantRunning(t, branch.Container("a")); got != boot {
		t.Errorf("the branch is %s, want %s", got, boot)
	}
}

func wantPaused(ctx context.Context, t *testing.T, id string, want bool) {
	t.Helper()
	if got, err := client.Paused(ctx, id); err != nil || got != want {
		t.Errorf("paused: %v, %v, want %v", got, err, want)
	}
}

// TestCheckpointWhileItEnds: a pod is not saved while one of its containers was told to end and is still there. A
// snapshot of it would end again. Once the container is gone, the pod can be saved.
func TestCheckpointWhileItEnds(t *testing.T) {
	s := spec("ends", nil)
	s.Containers = append(s.Containers, bed.Container{
		Name: "stays", Command: []string{"/bin/sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"},
	})
	pod := runPod(t, s)
	stays := pod.Container("stays")
	err := bed.Until(limited(t), func() error {
		out, err := node.Logs(limited(t), stays)
		if err == nil && !strings.Contains(out, "ready") {
			err = errors.New("it does not run yet")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw := rawTasks(t)
	signal := func(s syscall.Signal) {
		t.Helper()
		ctx := namespaces.WithNamespace(limited(t), cri.DefaultNamespace)
		if _, err := raw.Kill(ctx, &tasks.KillRequest{ContainerID: stays, Signal: uint32(s)}); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGTERM)
	err = client.Checkpoint(limited(t), pod.ID, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "told to end") {
		t.Errorf("a checkpoint while a container ends: %v", err)
	}
	signal(syscall.SIGKILL)
	err = bed.Until(limited(t), func() error { return client.Checkpoint(limited(t), pod.ID, t.TempDir()) })
	if err != nil {
		t.Error(err)
	}
	wantRunning(t, pod.Container("a"))
}

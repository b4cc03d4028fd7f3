package integration

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
)

// TestUnstarted removes a pod whose sandbox has ended after one of its containers was created, and before that
// container was started. If the kubelet has ended in between, containerd's CRI forgets that it has created the
// container.
func TestUnstarted(t *testing.T) {
	for name, asked := range map[string]bool{"forgotten": false, "its removal is asked for": true} {
		t.Run(name, func(t *testing.T) {
			before := processes(t)
			s := single("unstarted", nil)
			pod, err := node.RunSandbox(limited(t), s)
			if err != nil {
				t.Fatal(err)
			}
			c, err := node.CreateContainer(limited(t), pod, s, s.Containers[0])
			if err != nil {
				t.Fatal(err)
			}
			ctx := namespaces.WithNamespace(limited(t), "k8s.io")
			conn := containerd(t)
			newTask(ctx, t, conn, c.ID)
			endSandbox(t, pod.ID)
			if asked {
				_, err := tasks.NewTasksClient(conn).Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: c.ID})
				t.Log(err)
			}
			removeAll(t)
			nothingLeft(t, before)
		})
	}
}

// newTask makes containerd create a container without starting it.
func newTask(ctx context.Context, t *testing.T, conn *grpc.ClientConn, id string) {
	t.Helper()
	c, err := containers.NewContainersClient(conn).Get(ctx, &containers.GetContainerRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	root, err := snapshots.NewSnapshotsClient(conn).Mounts(ctx,
		&snapshots.MountsRequest{Snapshotter: c.Container.Snapshotter, Key: c.Container.SnapshotKey})
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "output")
	if err := syscall.Mkfifo(output, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(output, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	_, err = tasks.NewTasksClient(conn).Create(ctx, &tasks.CreateTaskRequest{
		ContainerID: id, Rootfs: root.Mounts, Stdout: output, Stderr: output,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func endSandbox(t *testing.T, pod string) {
	t.Helper()
	p, err := client.Get(limited(t), pod)
	if err == nil {
		err = syscall.Kill(p.SandboxPID, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

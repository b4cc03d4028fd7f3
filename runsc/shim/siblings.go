package shim

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
)

// dialShimLimit bounds how long another shim may take to accept a connection.
const dialShimLimit = 2 * time.Second

// tell gives an order to the shim of a container of this pod, over the socket that containerd uses too.
func (z *sleeper) tell(ctx context.Context, container string, o sleep.Order) error {
	address, err := shim.ReadAddress(filepath.Join(filepath.Dir(z.c.bundle.dir), container, "address"))
	if err != nil {
		return fmt.Errorf("%s container %s: the address of its shim: %w", o.Verb, container, err)
	}
	conn, err := shim.AnonDialer(address, dialShimLimit)
	if err != nil {
		return fmt.Errorf("%s container %s: its shim: %w", o.Verb, container, err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	_, err = task.NewTaskClient(client).Update(namespaces.WithNamespace(ctx, z.namespace), &task.UpdateTaskRequest{
		ID: container, Annotations: map[string]string{sleep.Annotation: o.String()},
	})
	if err != nil {
		return fmt.Errorf("%s container %s: %w", o.Verb, container, sleep.Brief(errgrpc.ToNative(err)))
	}
	return nil
}

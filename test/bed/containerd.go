package bed

import (
	"context"
	"fmt"
	"os/exec"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerdSocket is where containerd serves its own API and the CRI.
const ContainerdSocket = "/run/containerd/containerd.sock"

// containerdName is the name of the program and of its log.
const containerdName = "containerd"

// Containerd is the containerd of a bed or of a node.
type Containerd struct {
	*Daemon
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
}

// startContainerd starts containerd in the space and returns when its CRI, which
// conn is for, is ready for pods.
func startContainerd(ctx context.Context, s space, conn *grpc.ClientConn) (*Containerd, error) {
	c := &Containerd{runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn)}
	c.Daemon = &Daemon{space: s, name: containerdName, args: []string{"-c", configFile}, up: c.ready}
	return c, c.Start(ctx)
}

// ready reports what the CRI still waits for.
func (c *Containerd) ready(ctx context.Context) error {
	if err := c.serves(c.space.path(ContainerdSocket))(ctx); err != nil {
		return err
	}
	s, err := c.runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range s.Status.Conditions {
		needed := condition.Type == cri.RuntimeReady || condition.Type == cri.NetworkReady
		if needed && !condition.Status {
			return fmt.Errorf("%s: %s", condition.Type, condition.Message)
		}
	}
	return nil
}

// Import gives containerd, for pods, the images of an OCI archive.
func (c *Containerd) Import(ctx context.Context, archive string) error {
	out, err := exec.CommandContext(ctx, here.Bin.Path("ctr"), "--address", c.space.path(ContainerdSocket),
		"--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bed: import images: %w\n%s", err, out)
	}
	return nil
}

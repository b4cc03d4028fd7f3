package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"diapause.dev/test/images"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerdSocket is where containerd serves its own API and the CRI.
const ContainerdSocket = "/run/containerd/containerd.sock"

// Containerd is the containerd of a bed or of a node.
type Containerd struct {
	*Daemon
	runtime cri.RuntimeServiceClient
}

// startContainerd starts containerd in the space and returns when its CRI, which
// runtime talks to, is ready for pods.
func startContainerd(ctx context.Context, s space, runtime cri.RuntimeServiceClient) (*Containerd, error) {
	c := &Containerd{runtime: runtime}
	c.Daemon = &Daemon{space: s, name: "containerd", args: []string{"-c", configFile}, up: c.ready}
	return c, c.Start(ctx)
}

// ready reports what the CRI still waits for.
func (c *Containerd) ready(ctx context.Context) error {
	if err := dials(c.space.path(ContainerdSocket))(ctx); err != nil {
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

// writeImages writes an archive of the test images, and returns its path.
func writeImages() (string, error) {
	f, err := os.CreateTemp(tmpDir, "images-*.tar")
	if err != nil {
		return "", fmt.Errorf("bed: %w", err)
	}
	if err := errors.Join(images.Write(f, here.Bin), f.Close()); err != nil {
		return "", fmt.Errorf("bed: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return f.Name(), nil
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

// importImages gives containerd the test images.
func (c *Containerd) importImages(ctx context.Context) error {
	archive, err := writeImages()
	if err != nil {
		return err
	}
	return errors.Join(c.Import(ctx, archive), os.Remove(archive))
}

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"diapause.dev/test/images"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerdSocket is where containerd serves its own API and the CRI.
const ContainerdSocket = "/run/containerd/containerd.sock"

// Containerd is the bed's containerd.
type Containerd struct {
	*process
	runtime cri.RuntimeServiceClient
}

// startContainerd starts containerd and returns when its CRI is ready for pods.
func startContainerd(ctx context.Context, runtime cri.RuntimeServiceClient) (*Containerd, error) {
	c := &Containerd{runtime: runtime}
	return c, c.start(ctx)
}

// Restart ends containerd by SIGTERM and starts it again; pods live on. It returns when
// the CRI is ready again.
func (c *Containerd) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.start(ctx)
}

func (c *Containerd) start(ctx context.Context) error {
	p, err := startProcess("containerd", "containerd", "-c", configFile)
	if err != nil {
		return err
	}
	c.process = p
	if err := p.ready(ctx, c.ready); err != nil {
		p.Kill()
		return err
	}
	return nil
}

// ready reports what the CRI still waits for.
func (c *Containerd) ready(ctx context.Context) error {
	if err := dials(ContainerdSocket)(ctx); err != nil {
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

// importImages gives containerd the test images.
func importImages(ctx context.Context) (err error) {
	archive := filepath.Join(tmpDir, "images.tar")
	f, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("bed: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(archive)) }()
	if err := errors.Join(images.Write(f, here.Bin), f.Close()); err != nil {
		return fmt.Errorf("bed: %w", err)
	}
	out, err := exec.CommandContext(ctx, here.Bin.Path("ctr"), "-n", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bed: import images: %w\n%s", err, out)
	}
	return nil
}

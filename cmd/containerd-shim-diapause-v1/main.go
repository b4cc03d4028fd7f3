// Command containerd-shim-diapause-v1 is the containerd shim of runtime type io.containerd.diapause.v1: gVisor's
// shim, with checkpoint and restore of whole pods. Containerd starts it. It is not meant for people to run.
package main

import (
	"context"

	containerd "github.com/containerd/containerd/v2/pkg/shim"

	"diapause.dev/runsc/shim"
)

func main() {
	shim.Register()
	containerd.Run(context.Background(), shim.NewManager())
}

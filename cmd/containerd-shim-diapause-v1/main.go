// Command containerd-shim-diapause-v1 is the containerd shim of runtime type io.containerd.diapause.v1: gVisor's
// shim, with checkpoint and restore of whole pods. Containerd starts it. It is not meant for people to run.
package main

import (
	"context"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/pkg/shim"

	"diapause.dev/runsc/shim"
)

func main() {
	ctx := context.Background()
	if len(os.Args) < 2 || os.Args[1] != shim.ServeAction {
		containerd.Run(ctx, shim.NewManager())
		return
	}
	if err := shim.Serve(ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", shim.RuntimeType, err)
		os.Exit(1)
	}
}

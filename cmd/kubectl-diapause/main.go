// Command kubectl-diapause is a plugin of kubectl: it checkpoints pods, shows and removes snapshots, and puts pods to
// sleep and wakes them. It needs a kubeconfig, and nothing on the nodes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"diapause.dev/cmd/kubectl-diapause/internal/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := plugin.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

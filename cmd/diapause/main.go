// Command diapause is the operator's tool: it asks the agent of this node, over its local socket,
// to checkpoint sandboxes, to restore snapshots, and to show, check and remove what is stored.
// Installed as kubectl-diapause it is the same tool as a kubectl plugin.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"diapause.dev/cmd/diapause/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

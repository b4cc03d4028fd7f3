// Command diapause is the operator's tool. Over the local socket of this node's agent, it checkpoints sandboxes,
// restores snapshots, and shows, checks and removes what is stored.
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

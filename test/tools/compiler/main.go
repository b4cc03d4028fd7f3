// Command compiler installs the C compiler that the race detector needs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"diapause.dev/test/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := tools.Compiler(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

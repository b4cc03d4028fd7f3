// Command demo freezes a real pod while it serves requests and brings it back twice, on a node of
// its own that leaves nothing behind, and prints what that took.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"diapause.dev/test/bed"
)

// limit bounds the whole of it, so that it never hangs.
const limit = 2 * time.Minute

func main() {
	bed.Enter()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := run(ctx, newPage(os.Stdout))
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

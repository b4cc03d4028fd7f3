// Command bench measures Diapause side by side with stock gVisor, on a node of its own:
//
//	bench pause     the pause of a checkpoint, as the application sees it
//	bench precopy   how far a pod is slowed down while its memory is stored before the pause
//	bench loading   the pause of a checkpoint soon after a restore, while the sandbox loads
//	bench restore   from the start of the first process to the first successful exec
//	bench programs  pause, restore and content of real programs under load
//	bench wake      what a restored server does: first answer, full speed, neighbours, branches
//
// Every figure is worth something only next to the others of its run. README.md says what each mode
// does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"diapause.dev/test/bed"
)

func main() {
	own := map[string]func([]string) error{precopyName: mainPrecopy, programsName: mainPrograms, wakeName: mainWake}
	if len(os.Args) > 1 && own[os.Args[1]] != nil {
		exit(own[os.Args[1]](os.Args[2:]))
	}
	b, p, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	bed.SetRunsc("runsc") // the figures so far are of gVisor's own build
	bed.Enter()
	exit(inContext(func(ctx context.Context) error { return run(ctx, b, p) }))
}

// inContext calls f with a context that ends with an interrupt.
func inContext(f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return f(ctx)
}

// exit ends the program.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

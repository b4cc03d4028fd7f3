// Command store measures the snapshot store on the memory of a real gVisor sandbox: how fast
// snapshots are written and read, how little is stored, and how near both come to what the machine
// allows. Each figure stands beside its bound, which is measured in the same run. README.md says what
// each scenario does.
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
	captureTo := flag.String("capture", "", "only capture the test data, into this directory (used by the program itself)")
	only := flag.String("only", "", "run only the scenarios whose name has this in it")
	scratch := flag.String("scratch", "",
		"make the stores in this directory (default: .cache of the repository, which is on its disk)")
	flag.Parse()
	if *captureTo != "" {
		bed.Enter()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *captureTo != "" {
		err = capture(ctx, *captureTo)
	} else {
		err = run(ctx, *only, *scratch)
	}
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "bench-store: failed:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// say tells the user what is being done.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench-store: "+format+"\n", args...) }

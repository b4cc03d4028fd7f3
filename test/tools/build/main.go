// Command build builds the programs that tests, demo and benchmarks run,
// installs the Debian packages that they need, and prints where the programs are.
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
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if err := tools.Packages(ctx, tools.Kubernetes); err != nil {
		return err
	}
	bin, err := tools.Build(ctx, tools.Kubernetes, tools.KubeProxy)
	if err != nil {
		return err
	}
	fmt.Println(bin.Dir)
	return nil
}

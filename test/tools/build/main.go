// Command build builds the programs that tests, demo and benchmarks run,
// installs the Debian packages that they need, and prints where the programs are. With -clean it removes those that all
// checkouts share.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"diapause.dev/test/tools"
)

func main() {
	clean := flag.Bool("clean", false, "remove the built programs that all checkouts share, and build nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := build
	if *clean {
		do = tools.Clean
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(ctx context.Context) error {
	if err := tools.Packages(ctx, tools.Kubernetes); err != nil {
		return err
	}
	bin, err := tools.Build(ctx, tools.Kubernetes, tools.KubeProxy, tools.S3)
	if err != nil {
		return err
	}
	if _, err := tools.Azurite(ctx); err != nil {
		return err
	}
	fmt.Println(bin.Dir)
	return nil
}

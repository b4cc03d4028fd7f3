package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// localBuilder is the builder's identity unless --builder names another: some machine that nobody vouches for.
const localBuilder = "https://diapause.dev/builders/local"

func main() {
	out := flag.String("out", ".cache/release", "`directory` of the results; what it has of a former release is replaced")
	revision := flag.String("revision", "HEAD", "`commit` to build; changes that are not committed are not in it")
	builder := flag.String("builder", localBuilder, "`URI` of who builds, for the provenance")
	var m manifest
	flag.StringVar(&m.version, "version", "", "`version` of the plugin of kubectl in its manifest for krew, as v0.1.0")
	flag.StringVar(&m.uri, "plugin-uri", "", "`URI` of the directory that will have the archives of the plugin")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, *revision, *builder, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run releases the revision of the repository that holds the working directory.
func run(ctx context.Context, out, revision, builder string, m manifest) (err error) {
	if err := m.check(); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "diapause-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	src, err := checkout(ctx, ".", revision, filepath.Join(tmp, "src"))
	if err != nil {
		return err
	}
	if err := pinToolchain(src.dir); err != nil {
		return err
	}
	digest, err := assemble(ctx, src, out, builder, m)
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

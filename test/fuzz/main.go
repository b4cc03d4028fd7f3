// Command fuzz runs every fuzz target of the module for a time, one after the other, and says at the
// end which of them found something. It is run at the root of the module; what the targets learn
// about their inputs is kept in .cache/fuzz, what makes one fail in its package's testdata.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("time", time.Minute, "how long to run each target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *each)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, each time.Duration) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	list, err := targets(os.DirFS(root))
	if err != nil {
		return err
	}
	var failed []error
	for i, t := range list {
		fmt.Printf("fuzz: %d of %d: %s\n", i+1, len(list), t)
		if err := t.run(ctx, root, each); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", t, err))
		}
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
	}
	fmt.Printf("%d targets, %d failed\n", len(list), len(failed))
	return errors.Join(failed...)
}

// target is a fuzz target.
type target struct{ dir, name string }

func (t target) String() string { return "./" + t.dir + " " + t.name }

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// targets finds all fuzz targets of a module.
func targets(module fs.FS) (list []target, err error) {
	err = fs.WalkDir(module, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := fs.ReadFile(module, path)
		for _, m := range declaration.FindAllSubmatch(data, -1) {
			list = append(list, target{filepath.Dir(path), string(m[1])})
		}
		return err
	})
	if err == nil && len(list) == 0 {
		err = errors.New("no fuzz targets here: run it at the root of the module")
	}
	return list, err
}

// minimize bounds how long go test looks for a shorter input that does the same, at each input that
// reaches new code. Its own bound is a minute, in which it tries nothing else: most of a target's time.
const minimize = 200 * time.Millisecond

// run runs the target. An error says that it failed.
func (t target) run(ctx context.Context, root string, each time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "test", "./"+t.dir, "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(),
		"-fuzzminimizetime="+minimize.String(), "-args", "-test.fuzzcachedir="+filepath.Join(root, ".cache", "fuzz", t.dir))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	err := cmd.Run()
	if err != nil && onlyLate(out.String(), t.name) {
		fmt.Println("fuzz: that was not a finding, but go.dev/issue/75804: the time was over")
		return nil
	}
	return err
}

// onlyLate reports whether all that a target failed for is that its time was over. Go before 1.27 takes
// that for a failure now and then (go.dev/issue/75804). What a target finds is written to a file, and
// that is said.
func onlyLate(out, name string) bool {
	_, failure, failed := strings.Cut(out, "--- FAIL: "+name+" ")
	_, reason, _ := strings.Cut(failure, "\n")
	return failed && strings.HasPrefix(reason, "    context deadline exceeded\nFAIL\n") &&
		!strings.Contains(out, "Failing input written")
}

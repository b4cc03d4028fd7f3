package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"diapause.dev/test/tools"
)

// coverage is where the counters of all tests and programs of a run go.
type coverage struct{ dir string }

// newCoverage makes an empty directory for counters.
func newCoverage(dir string) (*coverage, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	return &coverage{dir}, os.MkdirAll(dir, 0o777)
}

// rooms are the directories of the module whose statements count.
var rooms = []string{"agent", "api", "bench", "cmd", "cri", "runsc", "storage"}

// buildFlags are the flags of go test and go build that add the counters. There is one mode, since those of several
// modes cannot be added up, and the race detector takes no other.
func buildFlags() []string {
	var patterns []string
	for _, r := range rooms {
		patterns = append(patterns, tools.Module+"/"+r+"/...")
	}
	return []string{"-cover", "-covermode=atomic", "-coverpkg=" + strings.Join(patterns, ",")}
}

// coverageVariable names the directory for counters to the runs of test binaries.
const coverageVariable = "DIAPAUSE_SUITE_COVERAGE"

// add adds to the arguments and the environment of go test what makes tests write counters, and the programs that their
// beds build and run.
func (c *coverage) add(args, env []string, beds bool) ([]string, []string) {
	env = append(env, coverageVariable+"="+c.dir)
	if beds {
		env = append(env, "GOFLAGS="+strings.Join(append(strings.Fields(os.Getenv("GOFLAGS")), buildFlags()...), " "))
	}
	return append(buildFlags(), args...), env
}

// cover has a test binary, and what it starts, write their counters where the runner wants them: go test names a
// directory of its own.
func cover(cmd *exec.Cmd) {
	if dir := os.Getenv(coverageVariable); dir != "" {
		cmd.Args = append(cmd.Args, "-test.gocoverdir="+dir)
		cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir, coverageVariable+"=") // a test may run a suite of its own
	}
}

// statements counts statements.
type statements struct{ all, reached int }

// print prints a table of the rooms.
func (c *coverage) print(ctx context.Context, out io.Writer) error {
	path := c.dir + ".txt"
	cmd := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+c.dir, "-o="+path)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("read the counters in %s: %w: %s", c.dir, err, text)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := readProfile(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	printCoverage(out, table)
	return nil
}

// readProfile adds up a profile of coverage by the first part of each path. A block that is named twice is reached if
// it was reached once.
func readProfile(r io.Reader) (map[string]statements, error) {
	blocks := map[string]statements{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode: ") {
			continue
		}
		var block string
		var size, count int
		if _, err := fmt.Sscan(lines.Text(), &block, &size, &count); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		b := statements{all: size, reached: blocks[block].reached}
		if count > 0 {
			b.reached = size
		}
		blocks[block] = b
	}
	table := map[string]statements{}
	for block, b := range blocks {
		room, _, _ := strings.Cut(filepath.ToSlash(short(block)), "/")
		sum := table[room]
		table[room] = statements{sum.all + b.all, sum.reached + b.reached}
	}
	return table, lines.Err()
}

func printCoverage(out io.Writer, table map[string]statements) {
	fmt.Fprint(out, "\nStatements that were reached, by tests or by programs of beds. A program that was killed by\n"+
		"SIGKILL does not count, nor does one without the directory for counters, such as an agent in a pod or a sidecar.\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "statements\treached\t%\t  directory")
	var sum statements
	for _, room := range slices.Sorted(maps.Keys(table)) {
		s := table[room]
		sum = statements{sum.all + s.all, sum.reached + s.reached}
		s.row(w, room)
	}
	sum.row(w, "all")
	w.Flush()
}

func (s statements) row(w io.Writer, name string) {
	fmt.Fprintf(w, "%d\t%d\t%.1f\t  %s\n", s.all, s.reached, 100*float64(s.reached)/float64(max(1, s.all)), name)
}

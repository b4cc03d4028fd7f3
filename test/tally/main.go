// Command tally runs go test with the arguments it is given, passes on what the tests print, and
// ends with the line "N passed, N failed". A test with subtests counts as these; what fails without
// being a test, as a package that does not build or runs too long, counts as one that failed. The
// exit status is 1 unless all passed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	t, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	passed, failed := t.result(err)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// run runs go test. Its error says what went wrong besides tests.
func run(args []string) (*tally, error) {
	t := newTally(os.Stdout)
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return t, err
	}
	if err := cmd.Start(); err != nil {
		return t, err
	}
	err = t.read(out)
	var exit *exec.ExitError
	if waitErr := cmd.Wait(); !errors.As(waitErr, &exit) || t.failures() == 0 {
		err = errors.Join(err, waitErr)
	}
	return t, err
}

// event is what go test -json says.
type event struct{ Action, Package, Test, Output string }

// tally is what became of tests, by package and name.
type tally struct {
	to      io.Writer
	results map[[2]string]string
	parents map[[2]string]bool // tests with subtests
}

func newTally(to io.Writer) *tally {
	return &tally{to: to, results: make(map[[2]string]string), parents: make(map[[2]string]bool)}
}

func (t *tally) read(r io.Reader) error {
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("output of go test: %w", err)
		}
		t.add(e)
	}
}

func (t *tally) add(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			fmt.Fprint(t.to, e.Output)
		}
	case "run":
		t.results[key] = "fail" // unless it ends otherwise
		if i := strings.LastIndex(e.Test, "/"); i >= 0 {
			t.parents[[2]string{e.Package, e.Test[:i]}] = true
		}
	case "pass", "skip", "fail":
		t.results[key] = e.Action
	}
}

// failures is how many tests without subtests failed.
func (t *tally) failures() (n int) {
	_, n = t.result(nil)
	return n
}

// result counts tests without subtests. A parent or a package that failed though none of its tests
// did counts, and so does an error.
func (t *tally) result(err error) (passed, failed int) {
	var others int
	for key, r := range t.results {
		leaf := key[1] != "" && !t.parents[key]
		switch {
		case leaf && r == "pass":
			passed++
		case leaf && r == "fail":
			failed++
		case r == "fail":
			others++
		}
	}
	if failed == 0 && (others > 0 || err != nil) {
		failed++
	}
	return passed, failed
}

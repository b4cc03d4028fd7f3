package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// event is what go test -json says, as far as it counts here.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
	ImportPath                    string  // of what is built, for build-output
	FailedBuild                   string  // the ImportPath of the build for which a package has failed
}

// test is a test of a phase, or the package as a whole if the test has no name.
type test struct {
	phase, pkg, name string
	action           string // its end: pass, fail or skip; empty if it did not end
	seconds          float64
	lines            []string // of output, unless it passed
	open             bool     // the last line goes on
	failedBuild      string
}

// id names the test for people.
func (t *test) id() string { return strings.TrimSuffix(t.pkg+"."+t.name, ".") }

// phaseTests is what a phase's file of events says.
type phaseTests struct {
	tests  []*test // in the order in which they began
	byName map[string]*test
	builds map[string][]string // output of builds
}

// readEvents reads the events of a phase. A file that is not there, or whose last line is cut off, says less.
func readEvents(phase, path string) (*phaseTests, error) {
	p := &phaseTests{byName: map[string]*test{}, builds: map[string][]string{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return p, nil
		} else if err != nil {
			return nil, err
		}
		p.add(phase, e)
	}
}

func (p *phaseTests) add(phase string, e event) {
	if e.Action == "build-output" {
		p.builds[e.ImportPath] = append(p.builds[e.ImportPath], strings.TrimRight(e.Output, "\n"))
		return
	}
	if e.Package == "" {
		return
	}
	t := p.find(phase, short(e.Package), e.Test)
	switch e.Action {
	case "output":
		t.print(e.Output)
		if e.Test != "" { // the output of a package is that of its tests, too
			p.find(phase, t.pkg, "").print(e.Output)
		}
	case "pass", "fail", "skip":
		t.action, t.seconds, t.failedBuild = e.Action, e.Elapsed, e.FailedBuild
		if e.Action != "fail" {
			t.lines, t.open = nil, false
		}
	}
}

// print adds to the test's output a line, or a piece of one: go test reports a long line in pieces.
func (t *test) print(piece string) {
	line := strings.TrimSuffix(piece, "\n")
	if last := len(t.lines) - 1; t.open {
		t.lines[last] += line
	} else {
		t.lines = append(t.lines, line)
	}
	t.open = line == piece
}

func (p *phaseTests) find(phase, pkg, name string) *test {
	key := pkg + "\n" + name
	t := p.byName[key]
	if t == nil {
		t = &test{phase: phase, pkg: pkg, name: name}
		p.byName[key] = t
		p.tests = append(p.tests, t)
	}
	return t
}

// readUsage adds the usage of a phase's test binaries to seconds, by package.
func readUsage(root, path string, seconds map[string]float64) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var u usage
		if err := d.Decode(&u); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name, err := filepath.Rel(root, u.Dir)
		if err != nil {
			return err
		}
		seconds[name] += u.User + u.System
	}
}

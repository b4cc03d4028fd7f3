package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of this module.
const root = "../.."

// TestEveryPackage: every package of the module is in a phase that runs unasked, with all of its tests.
func TestEveryPackage(t *testing.T) {
	list, err := packages(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		whole := slices.ContainsFunc(phases, func(ph phase) bool {
			return !ph.asked && ph.dir == "" && ph.pick(p) && !strings.Contains(strings.Join(ph.flags, " "), "-run=")
		})
		if !whole {
			t.Errorf("no phase runs all tests of %s", p.name)
		}
	}
	for _, p := range phases {
		inLane := slices.ContainsFunc(lanes, func(lane []string) bool { return slices.Contains(lane, p.name) })
		if inLane == p.asked {
			t.Errorf("phase %s: in a lane: %t", p.name, inLane)
		}
	}
}

var (
	unracedTag = regexp.MustCompile(`(?m)^//go:build .*!race`)
	function   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestUnraced: a test in a file that is not compiled with the race detector runs in a phase without it.
func TestUnraced(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && unracedTag.Match(text) {
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				checkUnraced(t, filepath.Dir(path), m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkUnraced(t *testing.T, dir, test string) {
	t.Helper()
	name, err := filepath.Rel(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(phases, func(p phase) bool {
		return !p.asked && p.pick(pkg{name: name}) && !p.raced() && runs(p, test)
	})
	if !found {
		t.Errorf("%s.%s runs in no phase", name, test)
	}
}

// runs reports whether a phase's flags choose a test.
func runs(p phase, test string) bool {
	for _, f := range p.flags {
		if pattern, ok := strings.CutPrefix(f, "-run="); ok {
			return regexp.MustCompile(pattern).MatchString(test)
		}
	}
	return true
}

func TestSchedule(t *testing.T) {
	list := []phase{{name: "a"}, {name: "b-one"}, {name: "b-two"}, {name: "c"}, {name: "d", asked: true}}
	table := [][]string{{"b-two", "a"}, {"b-one"}}
	for names, want := range map[string]string{
		"": "b-two a|b-one|c", "a": "a", "b": "b-two|b-one", "c,b-one": "b-one|c", "d": "d", "nothing": "",
	} {
		var chosen []string
		if names != "" {
			chosen = strings.Split(names, ",")
		}
		var got []string
		for _, lane := range schedule(list, table, chosen) {
			var line []string
			for _, p := range lane {
				line = append(line, p.name)
			}
			got = append(got, strings.Join(line, " "))
		}
		if got := strings.Join(got, "|"); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}

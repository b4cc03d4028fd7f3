package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/tools"
)

// TestMain runs the tests, or, below them, the roles of this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "exec" || os.Args[1] == "spin") {
		main()
	}
	os.Exit(m.Run())
}

// module is a module with a package for each way to pass or fail.
var module = map[string]string{
	"go.mod":       "module " + tools.Module + "\n\ngo 1.26\n",
	"none/none.go": "package none\n",
	"pass/a_test.go": `package pass
import "testing"
func TestA(t *testing.T) { t.Log("noise"); t.Run("sub", func(t *testing.T) {}) }
func TestSkipped(t *testing.T) { t.Skip("not here") }
`,
	"fail/a_test.go": `package fail
import ("testing"; "strings")
func TestA(t *testing.T) {
	for range 20 { t.Log("noise") }
	t.Error("reason " + strings.Repeat("x", 1000) + " the cause\nand what was printed")
	t.Log("noise\nnoise")
	for range 30 { t.Error("again") }
	t.Fatal("end")
}
func TestB(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Run("deep", func(t *testing.T) { t.Fatal("why") }) }) }
type daemon struct{}
func (daemon) Log() string { return "what a daemon said" }
func show(t *testing.T, text string) { t.Helper(); t.Log(text) }
func TestC(t *testing.T) {
	t.Error("too bad")
	show(t, daemon{}.Log())
}
`,
	"panics/a_test.go": `package panics
import "testing"
func TestA(t *testing.T) { panic("a hole") }
`,
	"broken/a_test.go": `package broken
import "testing"
func TestA(t *testing.T) { missing }
`,
	"nobed/a_test.go": `package nobed
import ("testing"; "os"; "fmt")
func TestMain(m *testing.M) { fmt.Println("there is no bed"); os.Exit(1) }
func TestA(t *testing.T) {}
`,
	"late/a_test.go": `package late
import "testing"
func TestA(t *testing.T) { select {} }
func init() { go func() { for { select {} } }() }
`,
	"slow/a_test.go": `package slow
import ("testing"; "os"; "os/exec"; "os/signal")
func TestA(t *testing.T) {
	if os.Getenv("STARTED") == "" { t.Skip() }
	signal.Ignore(os.Interrupt)
	child := exec.Command("sleep", "1000") // it ignores the interrupt, too, and holds the output
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil { t.Fatal(err) }
	if err := os.WriteFile(os.Getenv("STARTED"), nil, 0o644); err != nil { t.Fatal(err) }
	select {}
}
`,
	"flaky/a_test.go": `package flaky
import ("testing"; "os")
func TestA(t *testing.T) {
	name := os.Getenv("RUNS")
	if name == "" { t.Skip() }
	runs, _ := os.ReadFile(name)
	if len(runs) == 1 { t.Error("the second time") }
	if err := os.WriteFile(name, append(runs, 'x'), 0o644); err != nil { t.Fatal(err) }
}
`,
	"test/bed/bed.go": "package bed\n",
	"agent/a.go":      "package agent\nfunc F() { println() }\n",
	"cmd/x/main.go": "package main\nimport (\"diapause.dev/agent\"; \"diapause.dev/cri\")\n" +
		"func main() { agent.F(); cri.F() }\n",
	"cri/a.go": "package cri\nfunc F() { println() }\nfunc G() { println() }\nfunc H() { println() }\n",
	"cri/a_test.go": `package cri
import ("testing"; "os/exec"; "path/filepath"; _ "diapause.dev/test/bed")
func TestA(t *testing.T) {
	G()
	program := filepath.Join(t.TempDir(), "x")
	if out, err := exec.Command("go", "build", "-o", program, "diapause.dev/cmd/x").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil { t.Fatalf("%v: %s", err, out) }
}
`,
	"busy/a_test.go": `package busy
import ("testing"; "os"; "os/exec"; "syscall"; "time")
func burn() {
	for {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		if time.Duration(u.Utime.Nano()) > 300*time.Millisecond { return }
	}
}
func TestMain(m *testing.M) {
	if os.Getenv("BURN") != "" { burn(); os.Exit(0) }
	os.Exit(m.Run())
}
func TestA(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BURN=1")
	if err := cmd.Run(); err != nil { t.Fatal(err) }
}
`,
}

// fake is a suite of the module above.
func fake(t *testing.T) (*suite, *bytes.Buffer) {
	t.Helper()
	gotestsum, err := findGotestsum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := &suite{root: t.TempDir(), results: "results", self: self, gotestsum: gotestsum, grace: time.Minute}
	s.out = &output{w: &out}
	for name, text := range module {
		path := filepath.Join(s.root, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output:\n%s", &out)
		}
	})
	return s, &out
}

// alone runs one phase after the other.
var alone = options{lanes: 1, limit: time.Hour}

// part is a phase of the fake suite.
func part(name string, pick func(pkg) bool) phase {
	return phase{name: name, pick: pick, format: eachTest, timeout: 10 * time.Minute}
}

func text(r *report) string {
	var out bytes.Buffer
	r.print(&out)
	return out.String()
}

// TestReport: all ways to fail are in the report, with their reasons, and the sums are right.
func TestReport(t *testing.T) {
	s, out := fake(t)
	late := part("late", named("late"))
	late.timeout = time.Second
	bad := part("bad", named("fail", "panics", "broken", "nobed"))
	good := part("good", named("pass", "slow", "none"))
	list := [][]phase{{good}, {bad, late}, {part("empty", named("missing"))}}
	r := s.once(t.Context(), list, options{lanes: 3, limit: time.Hour})
	got := text(r)
	if r.ok() || !strings.HasSuffix(got, "\n2 passed, 8 failed, 2 skipped\n") {
		t.Errorf("ok is %v; the report:\n%s", r.ok(), got)
	}
	for _, want := range []string{
		"fail.TestA (bad)\n    a_test.go:5: reason xxx", "... (", "the cause\n        and what was printed\n" +
			"    a_test.go:7: again\n    a_test.go:7: again\n    a_test.go:8: end\n",
		"fail.TestB/sub/deep (bad)\n    a_test.go:10: why\n",
		"fail.TestC (bad)\n    a_test.go:15: too bad\n    a_test.go:16: what a daemon said\n",
		"panics.TestA (bad)\n    panic: a hole", "broken (bad)\n", "undefined: missing",
		"nobed (bad)\n    there is no bed\n", "late (late)\n    TestA did not end\n    panic: test timed out after 1s\n",
		"the whole phase (empty)\n    phase empty: no package is left to run\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "noise") {
		t.Errorf("what tests have logged is in the report:\n%s", got)
	}
	for line := range strings.Lines(out.String()) {
		if name, _, _ := strings.Cut(line, " | "); !slices.Contains([]string{"good", "bad", "late", "empty"}, name) {
			t.Errorf("a line without the name of its phase: %q", line)
		}
	}
}

// TestPasses: nothing failed, in lanes that wait for each other.
func TestPasses(t *testing.T) {
	s, _ := fake(t)
	r := s.once(t.Context(), [][]phase{{part("one", named("pass"))}, {part("two", named("pass", "none"))}}, alone)
	if got := text(r); !r.ok() || !strings.HasSuffix(got, "\n4 passed, 0 failed, 2 skipped\n") {
		t.Errorf("ok is %v; the report:\n%s", r.ok(), got)
	}
}

// TestCutShort: a run that is cut short ends all of its processes, and says how far it came.
func TestCutShort(t *testing.T) {
	s, _ := fake(t)
	s.grace = 2 * time.Second
	slow := part("slow", named("slow"))
	started := filepath.Join(t.TempDir(), "started")
	slow.env = []string{"STARTED=" + started}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for _, err := os.Stat(started); err != nil && ctx.Err() == nil; _, err = os.Stat(started) {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(errors.New("somebody said so"))
	}()
	r := s.once(ctx, [][]phase{{part("good", named("pass")), slow, part("never", named("pass"))}}, alone)
	got := text(r)
	for _, want := range []string{
		"\nThe run was cut short: somebody said so.\n", "\n2 passed, ", "slow (slow)\n    TestA did not end\n",
		"never (did not run)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if r.ok() {
		t.Error("a run that was cut short is fine")
	}
}

// TestUsage: what the child of a test has used counts for its package.
func TestUsage(t *testing.T) {
	s, _ := fake(t)
	r := s.once(t.Context(), [][]phase{{part("busy", named("busy"))}}, alone)
	if got := r.cpu["busy"]; !r.ok() || got < 0.3 {
		t.Errorf("%v s of CPU, at least 0.3 were used; ok is %v", got, r.ok())
	}
	if p := r.phases[0]; p.cpu.Seconds() < r.cpu["busy"] {
		t.Errorf("the phase has used %v, less than its package with %v s", p.cpu, r.cpu["busy"])
	}
}

// TestFlakes: a test that fails in the run beside busy loops alone is found, with its reason, and the loops end.
func TestFlakes(t *testing.T) {
	s, out := fake(t)
	flaky := part("flaky", named("flaky"))
	flaky.env = []string{"RUNS=" + filepath.Join(t.TempDir(), "runs")}
	once := func(s *suite) *report { return s.once(t.Context(), [][]phase{{flaky}}, alone) }
	f, err := s.repeat(t.Context(), 3, 1, once)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	f.print(&got)
	const want = `
3 runs; beside busy loops: [2]; cut short: []. What failed:
1 of 3: flaky.TestA (flaky), runs [2]
    a_test.go:7: the second time
`
	if f.ok() || got.String() != want {
		t.Errorf("ok is %v; got\n%s", f.ok(), &got)
	}
	if children := childrenOf(t, os.Getpid()); children != "" {
		t.Errorf("processes are left: %s", children)
	}
	if strings.Count(out.String(), " passed, ") != 3 {
		t.Error("not every run has a report")
	}
}

// childrenOf returns the processes whose parent is that one.
func childrenOf(t *testing.T, pid int) (children string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatalf("no list of children: %v", err)
	}
	for _, path := range lists {
		list, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a thread may end
			t.Fatal(err)
		}
		children += string(list)
	}
	return children
}

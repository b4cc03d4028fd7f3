// Package workflows checks the workflows of GitHub: that actionlint finds nothing, and what it does not look at, such
// as pinned actions. They do not run here. It is a module of its own, because only it needs actionlint.
package workflows

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// TestWorkflows: no rule is broken, and each action has one version.
func TestWorkflows(t *testing.T) {
	paths, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(paths) < 2 {
		t.Fatalf("%q, %v", paths, err)
	}
	var all string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems(t, path, text) {
			t.Errorf("%s: %s", path, p)
		}
		all += string(text)
	}
	pins := map[string]string{}
	for _, m := range regexp.MustCompile(`uses: (\S+)@(\S+ # \S+)`).FindAllStringSubmatch(all, -1) {
		if of := pins[m[1]]; of != "" && of != m[2] {
			t.Errorf("%s is used as %s and %s", m[1], of, m[2])
		}
		pins[m[1]] = m[2]
	}
	if len(pins) != 3 {
		t.Errorf("actions: %v", pins)
	}
}

// problems returns what is wrong with a workflow.
func problems(t *testing.T, path string, text []byte) (out []string) {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.Lint(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		out = append(out, e.Error())
	}
	w, _ := actionlint.Parse(text) // the linter has reported what cannot be parsed
	if w == nil {
		return out
	}
	if !reads(w.Permissions) {
		out = append(out, "permissions are not contents: read")
	}
	for _, e := range w.On {
		if name := e.EventName(); name != "push" && name != "pull_request" {
			out = append(out, "the event "+name)
		}
	}
	if strings.Contains(string(text), "secrets.") {
		out = append(out, "a secret")
	}
	for name, j := range w.Jobs {
		for _, p := range jobProblems(j, string(text)) {
			out = append(out, name+": "+p)
		}
	}
	return out
}

// reads reports whether a workflow may read the repository, and nothing else.
func reads(p *actionlint.Permissions) bool {
	if p == nil || p.All != nil || len(p.Scopes) != 1 {
		return false
	}
	contents := p.Scopes["contents"]
	return contents != nil && contents.Value.Value == "read"
}

// pinned is an action at a commit. The version stands behind it, for people.
var pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`)

func jobProblems(j *actionlint.Job, text string) (out []string) {
	if j.Permissions != nil {
		out = append(out, "permissions of its own")
	}
	if j.TimeoutMinutes == nil {
		out = append(out, "no timeout")
	}
	if j.WorkflowCall != nil || j.Container != nil || j.Services != nil {
		out = append(out, "an image or a workflow from elsewhere")
	}
	for i, s := range j.Steps {
		switch e := s.Exec.(type) {
		case *actionlint.ExecRun:
			if strings.Contains(e.Run.Value, "${{") {
				out = append(out, fmt.Sprintf("step %d: an expression in a script", i))
			}
		case *actionlint.ExecAction:
			if uses := e.Uses.Value; !pinned.MatchString(uses) || !strings.Contains(text, uses+" # v") {
				out = append(out, fmt.Sprintf("step %d: %s is not pinned", i, uses))
			}
			keep := e.Inputs["persist-credentials"]
			if strings.HasPrefix(e.Uses.Value, "actions/checkout@") && (keep == nil || keep.Value.Value != "false") {
				out = append(out, fmt.Sprintf("step %d: credentials stay in the checkout", i))
			}
		}
	}
	return out
}

// TestProblems: each rule finds a workflow that breaks it.
func TestProblems(t *testing.T) {
	const path = "../../.github/workflows/ci.yaml"
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, with, want string }{
		{"permissions:\n  contents: read\n", "", "permissions are not"},
		{"  contents: read\n", "  contents: write\n", "permissions are not"},
		{"permissions:\n  contents: read\n", "permissions: write-all\n", "permissions are not"},
		{"  pull_request:\n", "  pull_request_target:\n", "the event pull_request_target"},
		{"    timeout-minutes: 180\n", "", "no timeout"},
		{"    timeout-minutes: 180\n", "    timeout-minutes: 180\n    permissions: {}\n", "permissions of its own"},
		{"@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2", "@v4", "is not pinned"},
		{" # v4.2.2", "", "is not pinned"},
		{"persist-credentials: false", "fetch-depth: 0", "credentials stay"},
		{"CI=true", "CI=${{ github.actor }}", "an expression in a script"},
		{"CI=true", "T=${{ secrets.T }}", "a secret"},
		{"    runs-on: ubuntu-24.04\n", "    runs-on: ubuntu-24.04\n    container: debian\n", "an image"},
		{"failure()", "failed()", "undefined function"},
		{"    steps:\n", "    stepz:\n", "stepz"},
	} {
		bad := strings.Replace(string(good), c.old, c.with, 1)
		found := problems(t, path, []byte(bad))
		if !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, c.want) }) {
			t.Errorf("%q as %q: %q, want %q", c.old, c.with, found, c.want)
		}
	}
}

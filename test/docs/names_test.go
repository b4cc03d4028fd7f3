package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// documented are the kinds of constants whose values users see: how their names begin.
var documented = regexp.MustCompile(`^(Annotation|Label|Condition|Reason|Finalizer)`)

// TestNames: each annotation, label, condition and reason of the API is on a page of docs.
func TestNames(t *testing.T) {
	said := allText(t)
	for _, pattern := range []string{"api/podsnapshot/v1/*.go", "api/sleeppolicy/v1alpha1/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, path := range files {
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range constants(f) {
				if documented.MatchString(name) && !strings.Contains(said, "`"+value) {
					t.Errorf("%s in %s: no page of docs has `%s`", name, path, value)
				}
			}
		}
	}
}

// constants returns a file's constants that are texts, and what they say.
func constants(f *ast.File) map[string]string {
	all := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range s.Values {
			if b, ok := v.(*ast.BasicLit); ok && b.Kind == token.STRING {
				if value, err := strconv.Unquote(b.Value); err == nil {
					all[s.Names[i].Name] = value
				}
			}
		}
		return true
	})
	return all
}

// TestFlags: each flag of the agent is on its page.
func TestFlags(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "cmd/diapause-agent/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`f\.\w+\([&\w.]+, "([\w-]+)"`).FindAllSubmatch(source, -1)
	for _, f := range flags {
		if !strings.Contains(string(page), "`--"+string(f[1])+"`") {
			t.Errorf("docs/reference/agent.md has no `--%s`", f[1])
		}
	}
	if len(flags) < 30 {
		t.Errorf("%d flags", len(flags))
	}
}

// allText returns the pages of docs, one after the other.
func allText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for path := range pages(t) {
		if !strings.HasPrefix(path, "docs/") {
			continue
		}
		page, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(page)
	}
	return b.String()
}

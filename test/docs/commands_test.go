package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// testCommand is a command that runs one test or fuzz target of a directory. Without a test of that name, go test runs
// nothing and succeeds.
var testCommand = regexp.MustCompile(`go test \./([\w./-]+)[^;\n]*? -(?:run|fuzz) '?\^((?:Test|Fuzz)\w+)\$'?`)

// TestCommands: a command of a page that runs one test names one of that directory.
func TestCommands(t *testing.T) {
	commands := 0
	for path := range pages(t) {
		if unruled(path) {
			continue
		}
		d := read(t, path)
		walk(d.tree, func(n ast.Node) {
			for _, m := range testCommand.FindAllStringSubmatch(d.code(n), -1) {
				commands++
				if err := hasTest(m[1], m[2]); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
	if commands < 5 {
		t.Errorf("the pages have %d such commands", commands)
	}
}

// code returns the text of a span or a block of code, and nothing for other nodes.
func (d *document) code(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CodeSpan:
		return d.visible(n, "")
	case *ast.FencedCodeBlock:
		return string(n.Lines().Value(d.source))
	}
	return ""
}

// hasTest returns an error unless a directory of the repository has a test or fuzz target of this name.
func hasTest(dir, name string) error {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(source), "\nfunc "+name+"(") {
			return nil
		}
	}
	return fmt.Errorf("./%s has no %s: name the directory of the test", dir, name)
}

// TestCommandChecks: a command that runs nothing is found.
func TestCommandChecks(t *testing.T) {
	for command, wrong := range map[string]bool{
		"go test ./agent/restore -run '^TestRememberedIsWhole$' -count=1":             false,
		"go test ./agent -run '^TestRememberedIsWhole$' -count=1":                     true,
		"go test ./agent/journal -run '^$' -fuzz '^FuzzRecord$' -fuzztime 60s":        false,
		"go test ./agent -run '^$' -fuzz '^FuzzRecord$' -fuzztime 60s":                true,
		"go test ./test/e2e -run '^TestNoSuchTest$' -count=1 -v -timeout 30m; go vet": true,
	} {
		m := testCommand.FindStringSubmatch(command)
		if m == nil {
			t.Errorf("%s: not known as a command", command)
		} else if err := hasTest(m[1], m[2]); (err != nil) != wrong {
			t.Errorf("%s: %v", command, err)
		}
	}
}

package structure

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// panics has how often packages panic on what cannot happen, such as an error for a key of the right length. What comes
// from elsewhere is never a reason to panic: it is an error.
var panics = map[string]int{
	"agent/kube/podspec": 1, // what it encodes can be encoded
	"agent/kube/start":   1, // likewise
	"runsc/capture":      2, // a key of the right length; a panic that was not the kernel's is passed on
	"storage/digest":     1, // a key of the right length
	"storage/format":     3, // likewise; constant options
	"storage/signing":    1, // a key of ours can be encoded
}

// TestNoExits: only a main package ends its process. A library returns an error.
func TestNoExits(t *testing.T) {
	left := maps.Clone(panics)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for _, f := range s.files {
			if f.Name.Name == "main" || slices.Contains(imported(f), "testing") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch fn := call.Fun.(type) {
				case *ast.SelectorExpr:
					if ends(fn) {
						t.Errorf("%s: %s ends the process: return an error", s.at.Position(n.Pos()), fn.Sel.Name)
					}
				case *ast.Ident:
					if fn.Name == "panic" {
						left[s.dir]--
					}
				}
				return true
			})
		}
	}
	for dir, n := range left {
		if n != 0 {
			t.Errorf("%s panics %d times, the table has %d: return an error, or correct the table", dir, panics[dir]-n,
				panics[dir])
		}
	}
}

// ends reports whether a function or method ends the process, or panics: os.Exit, and those of loggers.
func ends(fn *ast.SelectorExpr) bool {
	pkg, _ := fn.X.(*ast.Ident)
	if fn.Sel.Name == "Exit" {
		return pkg != nil && slices.Contains([]string{"os", "syscall", "unix"}, pkg.Name)
	}
	return slices.Contains([]string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, fn.Sel.Name)
}

// imported returns the paths of what a file imports.
func imported(f *ast.File) (paths []string) {
	for _, i := range f.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

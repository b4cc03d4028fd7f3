package structure

import (
	"go/ast"
	"go/token"
	"maps"
	"testing"
)

// roots has how often library packages begin a context of their own. All other work is done in the context of who asks
// for it, or in context.WithoutCancel of that.
var roots = map[string]int{
	"agent/checkpoint":    3, // a sandbox is resumed and stopped although its request is over; a file on the spool's disk
	"agent/kube":          3, // the lives of Connection and Controller, which are made before they run, and of checkpoints
	"agent/snapshots":     1, // an attempt to open a store, which callers share
	"runsc/capture":       1, // until the sentry hangs up
	"runsc/forward":       1, // the time between two saves
	"runsc/lease":         1, // the life of a lease
	"runsc/revive":        1, // a runsc that waits for a later request
	"runsc/shim":          3, // what no request asks for
	"runsc/shim/limits":   1, // what goes on in the background
	"storage/storagetest": 1, // a server for all tests of a package
}

// TestContexts: library packages begin no contexts except those in the table, and say why where they do.
func TestContexts(t *testing.T) {
	left := maps.Clone(roots)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for _, f := range s.files {
			if f.Name.Name == "main" {
				continue
			}
			said := s.commented(f)
			ast.Inspect(f, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && (x.Sel.Name == "Background" || x.Sel.Name == "TODO") {
					if pkg, ok := x.X.(*ast.Ident); ok && pkg.Name == "context" {
						left[s.dir]--
						if at := s.at.Position(n.Pos()); !said[at.Line] {
							t.Errorf("%s: say in a comment on this line why no caller's context will do", at)
						}
					}
				}
				return true
			})
		}
	}
	for dir, n := range left {
		if n != 0 {
			t.Errorf("%s begins %d contexts, the table has %d: take a caller's, or correct the table", dir, roots[dir]-n,
				roots[dir])
		}
	}
}

// commented returns the lines of a file that have a comment.
func (s *source) commented(f *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, c := range f.Comments {
		for line := s.line(c.Pos()); line <= s.line(c.End()); line++ {
			lines[line] = true
		}
	}
	return lines
}

func (s *source) line(p token.Pos) int { return s.at.Position(p).Line }

package structure

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// state are the package variables of runsc that change while a program runs, and why they do.
var state = map[string]string{
	"runsc.asking": "bounds threads of the whole process",
}

// TestNoState: the packages of runsc have no variables that change, except those that are listed. Errors, tables,
// patterns and what is embedded do not change.
func TestNoState(t *testing.T) {
	left := maps.Clone(state)
	for _, s := range sources(t, "runsc") {
		for _, name := range s.variables() {
			key := s.dir + "." + name
			if left[key] == "" {
				t.Errorf("%s is a package variable that may change: make it a field of what uses it", key)
			}
			delete(left, key)
		}
	}
	checkUsed(t, left)
}

// variables returns the package variables that may change: those without a value, those made to be changed, and those
// that are assigned to.
func (s *source) variables() (names []string) {
	all, changed := make(map[string]bool), s.assigned()
	for _, f := range s.files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || ast.IsGenerated(f) || embedded(g) {
				continue
			}
			for _, x := range g.Specs {
				v := x.(*ast.ValueSpec)
				for i, name := range v.Names {
					if name.Name != "_" && (changed[name.Name] || len(v.Values) <= i || !fixed(v.Values[i])) {
						all[name.Name] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// embedded reports whether a variable holds a file.
func embedded(g *ast.GenDecl) bool {
	return g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// fixed reports whether the value x of a variable is of a kind that does not change by itself: a table, or what a
// function such as errors.New or regexp.MustCompile returns.
func fixed(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.CompositeLit, *ast.BasicLit, *ast.Ident, *ast.SelectorExpr, *ast.FuncLit, *ast.BinaryExpr:
		return true
	case *ast.UnaryExpr:
		return fixed(x.X)
	case *ast.CallExpr:
		made, ok := x.Fun.(*ast.Ident)
		return !ok || made.Name != "make" && made.Name != "new"
	}
	return false
}

// assigned returns the names of package variables that a function assigns to.
func (s *source) assigned() map[string]bool {
	names := make(map[string]bool)
	for _, f := range s.files {
		note := func(x ast.Expr) {
			for {
				index, ok := x.(*ast.IndexExpr)
				if !ok {
					break
				}
				x = index.X
			}
			// An identifier without an object is declared in another file of the package.
			if id, ok := x.(*ast.Ident); ok && (id.Obj == nil || f.Scope.Objects[id.Name] == id.Obj) {
				names[id.Name] = true
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, x := range n.Lhs {
						note(x)
					}
				}
			case *ast.IncDecStmt:
				note(n.X)
			}
			return true
		})
	}
	return names
}

// TestNotArmed: no program of the release arms a step at which it would die.
func TestNotArmed(t *testing.T) {
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for _, f := range s.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && x.Sel.Name == "Arm" {
					if pkg, ok := x.X.(*ast.Ident); ok && pkg.Name == "failpoint" {
						t.Errorf("%s calls failpoint.Arm", s.at.Position(n.Pos()))
					}
				}
				return true
			})
		}
	}
}

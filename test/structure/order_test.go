package structure

import (
	"go/ast"
	"strings"
	"testing"
)

// TestNoSetters: constructors take what a value needs. So no value has a method that must be called before its others:
// none is called Join, and no comment says so of another one.
func TestNoSetters(t *testing.T) {
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for _, f := range s.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil || ast.IsGenerated(f) {
					continue
				}
				if fn.Name.Name == "Join" {
					t.Errorf("%s: method Join: give the constructor what is joined", s.at.Position(fn.Pos()))
				}
				if saysFirst(fn.Doc) {
					t.Errorf("%s: method %s must be called first: make it an argument of the constructor",
						s.at.Position(fn.Pos()), fn.Name.Name)
				}
			}
		}
	}
}

// saysFirst reports whether a comment says that its method must be called before others.
func saysFirst(doc *ast.CommentGroup) bool {
	text := strings.Join(strings.Fields(doc.Text()), " ")
	for _, said := range []string{
		"must be called before any other method", "must be called before Run", "must be called before the first",
		"and at most once",
	} {
		if strings.Contains(text, said) {
			return true
		}
	}
	return false
}

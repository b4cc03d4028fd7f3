package structure

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"testing"
)

// notices is the package that has the texts of events and conditions.
const notices = "agent/kube/notice"

// TestNotices: what events and conditions say is in one package. Where they are made there is no text, and an event
// gets as many arguments as its text has verbs.
func TestNotices(t *testing.T) {
	verbs := eventVerbs(t)
	for _, s := range sources(t, "agent/kube") {
		if s.dir == notices {
			continue
		}
		for _, f := range s.files {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Message" || key.Name == "Reason") {
						noText(t, s, n.Value)
					}
				case *ast.CallExpr:
					s.checkNotice(t, n, verbs)
				}
				return true
			})
		}
	}
}

// checkNotice checks a call that makes an event or sets a condition.
func (s *source) checkNotice(t *testing.T, call *ast.CallExpr, verbs map[string]int) {
	t.Helper()
	name, args := "", call.Args
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		name = fn.Name
	case *ast.SelectorExpr:
		if name = fn.Sel.Name; name == "Say" {
			args = append([]ast.Expr{fn.X}, args...)
		}
	}
	if slices.Contains([]string{"SetReady", "setCondition", "setTriggered", "set", "awaiting", "tell"}, name) {
		noText(t, s, args...)
	}
	for i, x := range args {
		sel, ok := x.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		pkg, ok := sel.X.(*ast.Ident)
		if want, event := verbs[sel.Sel.Name]; ok && event && pkg.Name == "notice" {
			noText(t, s, args[i+1:]...)
			if got := len(args) - i - 1; got != want {
				t.Errorf("%s: %s has %d verbs and gets %d arguments", s.at.Position(call.Pos()), sel.Sel.Name, want, got)
			}
		}
	}
}

// noText fails for texts in expressions, except short ones such as separators.
func noText(t *testing.T, s *source, all ...ast.Expr) {
	t.Helper()
	words := regexp.MustCompile(`[a-z]{2,}[^a-z]+[a-z]{2,}`)
	for _, x := range all {
		ast.Inspect(x, func(n ast.Node) bool {
			if b, ok := n.(*ast.BasicLit); ok && b.Kind == token.STRING && words.MatchString(b.Value) {
				t.Errorf("%s: move the text %s to %s", s.at.Position(b.Pos()), b.Value, notices)
			}
			return true
		})
	}
}

// eventVerbs returns how many verbs the text of each event has.
func eventVerbs(t *testing.T) map[string]int {
	t.Helper()
	verb := regexp.MustCompile(`%(\.\d+)?[a-z]`)
	n := make(map[string]int)
	for _, s := range sources(t, notices) {
		for _, f := range s.files {
			ast.Inspect(f, func(x ast.Node) bool {
				v, ok := x.(*ast.ValueSpec)
				if !ok || len(v.Values) != 1 {
					return true
				}
				event, ok := v.Values[0].(*ast.CompositeLit)
				if !ok || len(event.Elts) != 4 {
					return true
				}
				n[v.Names[0].Name] = 0
				ast.Inspect(event.Elts[3], func(x ast.Node) bool {
					if b, ok := x.(*ast.BasicLit); ok {
						n[v.Names[0].Name] += len(verb.FindAllString(b.Value, -1))
					}
					return true
				})
				return true
			})
		}
	}
	if len(n) < 25 {
		t.Fatalf("%d events", len(n))
	}
	return n
}

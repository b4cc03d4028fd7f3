package structure

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// untold are the kinds of errors that no caller of an agent is told apart: only our own packages look for them, or they
// come with another kind.
var untold = []string{
	"agent/checkpoint.ErrAsleep", "agent/idle.ErrNever", "agent/install.ErrAsleep", "agent/install.ErrInUse",
	"agent/kube/adopt.ErrAlive", "agent/kube/objects.ErrClock", "agent/kube/rollback.ErrRolledBack",
	"agent/kube/rollback.ErrTaken", "agent/kube/rules.ErrPending", "agent/loading.ErrEnded", "agent/place.ErrNoStore",
	"agent/requests.ErrUnknown",
	"cri.ErrOutdated", "cri.ErrUnsupported",
	"runsc.ErrMemoryFile", "runsc/capture.ErrIncomplete", "runsc/capture.ErrOutgrown", "runsc/cgroup.ErrInUse",
	"runsc/cgroup.ErrNotVisible", "runsc/forward.ErrKernelStack", "runsc/gofer.ErrBreach", "runsc/hostfile.ErrChanged",
	"runsc/netns.ErrShared", "runsc/shim/answered.ErrOver", "runsc/shim/sleepstate.ErrState", "runsc/sidecar.ErrNotOurs",
	"runsc/sleep.ErrNewer",
	"runsc/sleep.ErrNoNetwork", "runsc/traffic.ErrIgnored", "runsc/volume.ErrOccupied",
	"storage.ErrIdentity", "storage.ErrSource", "storage.ErrTooLarge", "storage/bucket.ErrCredentials",
	"storage/bucket.ErrOverwrites", "storage/cache.ErrLocked",
}

// TestErrorKinds: every kind of error has a code in agent/local, or is a refusal of a shim's in runsc/refusal, or is
// listed as one that no caller is told apart.
func TestErrorKinds(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range untold {
		known[name] = false
	}
	for _, s := range sources(t, "agent/local", "runsc/refusal") {
		for _, name := range s.tabled() {
			known[name] = false
		}
	}
	kinds := make(map[string]string)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent") {
		maps.Copy(kinds, s.kinds())
	}
	for name, same := range kinds { // storage has the kinds of its format
		if _, ok := known[name]; ok && same != "" {
			known[same] = false
		}
	}
	for name, same := range kinds {
		_, ok := known[name]
		if _, other := known[same]; !ok && !other {
			t.Errorf("%s: give it a code in agent/local/errors.go, or list it here", name)
		}
		known[name] = true
	}
	for _, name := range untold {
		if !known[name] {
			t.Errorf("%s was not found: take it from the list", name)
		}
	}
}

// kinds returns the exported kinds of errors of a package. If one is that of another package, that is its value.
func (s *source) kinds() map[string]string {
	all := make(map[string]string)
	for _, f := range s.files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, x := range g.Specs {
				v := x.(*ast.ValueSpec)
				for i, name := range v.Names {
					if kind := s.dir + "." + name.Name; strings.HasPrefix(name.Name, "Err") {
						all[kind] = ""
						if i < len(v.Values) {
							all[kind] = kindIn(f, v.Values[i])
						}
					}
				}
			}
		}
	}
	return all
}

// tabled returns the kinds that stand in the rows of a package's tables.
func (s *source) tabled() (names []string) {
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if row, ok := n.(*ast.CompositeLit); ok {
				for _, x := range row.Elts {
					names = append(names, kindIn(f, x))
				}
			}
			return true
		})
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// kindIn returns the kind of error of one of our packages that an expression names, or nothing.
func kindIn(f *ast.File, x ast.Expr) string {
	sel, ok := x.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(sel.Sel.Name, "Err") {
		return ""
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, i := range f.Imports {
		imported, _ := strconv.Unquote(i.Path.Value) // the parser has read it
		name := path.Base(imported)
		if i.Name != nil {
			name = i.Name.Name
		}
		if dir, ours := strings.CutPrefix(imported, module+"/"); ours && name == pkg.Name {
			return dir + "." + sel.Sel.Name
		}
	}
	return ""
}

package structure

import (
	"go/ast"
	"path/filepath"
	"slices"
	"testing"
)

// foreign are loggers of libraries.
var foreign = []string{"github.com/containerd/log", "github.com/sirupsen/logrus", "log"}

// bridges are the files that set up where a process logs to: its libraries, and we.
var bridges = []string{"runsc/shim/serve.go", "runsc/shim/logger.go"}

// TestLogger: all packages log by log/slog, and a library writes nothing to the standard error, nor does it change
// where others log to. In a shim, the libraries of containerd and gVisor log by containerd's logger.
func TestLogger(t *testing.T) {
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for _, f := range s.files {
			name := s.dir + "/" + filepath.Base(s.at.Position(f.Pos()).Filename)
			if slices.Contains(bridges, name) || slices.Contains(imported(f), "testing") {
				continue
			}
			for _, path := range imported(f) {
				if slices.Contains(foreign, path) {
					t.Errorf("%s imports %s: log by log/slog", name, path)
				}
			}
			if f.Name.Name == "main" || s.dir == "storage/storagetest" { // a server's output is a test's
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok {
					pkg, ok := x.X.(*ast.Ident)
					if ok && (pkg.Name == "os" && x.Sel.Name == "Stderr" || pkg.Name == "slog" && x.Sel.Name == "SetDefault") {
						t.Errorf("%s: %s.%s: write to a logger, or to what the caller gives", s.at.Position(n.Pos()), pkg.Name,
							x.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

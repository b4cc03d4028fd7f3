// Package calls finds how the files of a package call each other, and the order of files in which most calls go down.
//
// A file calls another if it calls a function or method that the other one defines, or names it as a value. Uses of
// types, constants and variables do not count, nor do calls through interfaces and fields: with these a lower file
// speaks to one above without knowing it. Tests and generated files are no files here.
package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Package is the calls within a package.
type Package struct {
	// Dir is the package's directory, seen from the root, with slashes.
	Dir   string
	files []string // base names, sorted
	units []unit
}

// unit is a function or method, or what a file holds beside them.
type unit struct {
	name  string // empty: no function
	file  int
	calls []int // sorted, no unit twice
}

// Arrow is all calls from one file to another.
type Arrow struct {
	// From and To are base names of files.
	From, To string
	// Calls are the functions and methods that are called, and by which.
	Calls []string
}

// listed is what `go list` tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// Load returns the packages that match some patterns of the go command, seen from the directory root.
func Load(root string, patterns ...string) ([]*Package, error) {
	all, err := list(root, patterns)
	if err != nil {
		return nil, err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	export := make(map[string]string, len(all))
	for _, l := range all {
		export[l.ImportPath] = l.Export
	}
	at := token.NewFileSet()
	imports := importer.ForCompiler(at, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	var found []*Package
	for _, l := range all {
		if l.DepOnly {
			continue
		}
		p, err := load(at, imports, l)
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", l.ImportPath, err)
		}
		dir, err := filepath.Rel(root, l.Dir)
		if err != nil {
			return nil, err
		}
		p.Dir = filepath.ToSlash(dir)
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return found, nil
}

// list asks the go command for packages and for all that they import, compiled.
func list(root string, patterns []string) ([]listed, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", "--"}
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Dir = root
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(failed.Bytes()))
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// load parses a package and resolves its calls.
func load(at *token.FileSet, imports types.Importer, l listed) (*Package, error) {
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(at, filepath.Join(l.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: imports}
	if _, err := config.Check(l.ImportPath, at, files, &info); err != nil {
		return nil, err
	}
	p := new(Package)
	p.resolve(at, files, &info)
	return p, nil
}

// resolve finds the units of parsed files, and what they call.
func (p *Package) resolve(at *token.FileSet, files []*ast.File, info *types.Info) {
	files = slices.DeleteFunc(files, ast.IsGenerated)
	byFunc := make(map[types.Object]int)
	var bodies [][]ast.Node
	for i, f := range files {
		p.files = append(p.files, filepath.Base(at.Position(f.Pos()).Filename))
		rest := len(p.units)
		p.units = append(p.units, unit{file: i})
		bodies = append(bodies, nil)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				bodies[rest] = append(bodies[rest], d)
				continue
			}
			byFunc[info.Defs[fn.Name]] = len(p.units)
			p.units = append(p.units, unit{name: nameOf(fn), file: i})
			bodies = append(bodies, []ast.Node{fn})
		}
	}
	for i, nodes := range bodies {
		for _, n := range nodes {
			ast.Inspect(n, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if fn, ok := info.Uses[id].(*types.Func); ok {
						if to, ok := byFunc[fn.Origin()]; ok && !slices.Contains(p.units[i].calls, to) {
							p.units[i].calls = append(p.units[i].calls, to)
						}
					}
				}
				return true
			})
		}
		slices.Sort(p.units[i].calls)
	}
}

// nameOf returns the name of a function, or those of a method's type and of the method.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	x := fn.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// Arrows returns how many arrows there are between files, and those that go up in the order that order returns.
func (p *Package) Arrows() (all int, up []Arrow) {
	g := p.graph()
	place := places(g.order())
	for from := range g {
		all += len(g[from])
		for _, to := range g[from] {
			if place[to] < place[from] {
				up = append(up, Arrow{From: p.files[from], To: p.files[to], Calls: p.between(from, to)})
			}
		}
	}
	return all, up
}

// Order returns the files, those that call others first.
func (p *Package) Order() []string {
	var names []string
	for _, f := range p.graph().order() {
		names = append(names, p.files[f])
	}
	return names
}

// between returns the calls from one file to another.
func (p *Package) between(from, to int) (calls []string) {
	for _, u := range p.units {
		if u.file != from {
			continue
		}
		caller := u.name
		if caller == "" {
			caller = "a variable"
		}
		for _, c := range u.calls {
			if p.units[c].file == to {
				calls = append(calls, fmt.Sprintf("%s (by %s)", p.units[c].name, caller))
			}
		}
	}
	slices.Sort(calls)
	return calls
}

// graph returns which files call which.
func (p *Package) graph() graph {
	g := make(graph, len(p.files))
	for _, u := range p.units {
		for _, c := range u.calls {
			if to := p.units[c].file; to != u.file && !slices.Contains(g[u.file], to) {
				g[u.file] = append(g[u.file], to)
			}
		}
	}
	for _, to := range g {
		slices.Sort(to)
	}
	return g
}

package structure

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is the path of the module whose packages are looked at.
const module = "diapause.dev"

// root is the repository's directory, seen from here.
const root = "../.."

// source is what the files of one package hold that are compiled into programs, so no tests.
type source struct {
	dir   string // seen from the root, with slashes
	files []*ast.File
	at    *token.FileSet // where the parts of files are
	lines int            // without generated files
}

// sources parses the module's packages below some of its directories.
func sources(t *testing.T, below ...string) []*source {
	t.Helper()
	var all []*source
	for _, b := range below {
		err := filepath.WalkDir(filepath.Join(root, b), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if name := d.Name(); name == "testdata" || strings.HasPrefix(name, "_") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return fs.SkipDir // a module of its own
			}
			s, err := parse(path)
			if err == nil && len(s.files) > 0 {
				all = append(all, s)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no packages below %v", below)
	}
	return all
}

// parse parses the files of a directory that are compiled into programs.
func parse(path string) (*source, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		return nil, err
	}
	s := &source{dir: filepath.ToSlash(rel), at: token.NewFileSet()}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.at, name, data, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
		if !ast.IsGenerated(f) {
			s.lines += bytes.Count(data, []byte("\n"))
		}
	}
	return s, nil
}

// inside reports whether a package is one of some directories' or below them.
func inside(dir string, roots ...string) bool {
	for _, r := range roots {
		if dir == r || strings.HasPrefix(dir, r+"/") {
			return true
		}
	}
	return false
}

package images

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"diapause.dev/test/tools"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Python holds the machine's Python and its standard library. It is in an archive of its own, which
// only those import who need it.
const Python = "localhost/python:1"

// WritePython writes an archive with the image Python to w, made from the machine's python3, which
// has to be there (see tools.Python).
func WritePython(ctx context.Context, w io.Writer) error {
	program, err := filepath.EvalSymlinks(tools.PythonProgram)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	libraries, err := sharedLibraries(ctx, program)
	if err != nil {
		return err
	}
	modules, err := library(filepath.Join("/usr/lib", filepath.Base(program)))
	if err != nil {
		return err
	}
	t := newRootFS()
	t.add("usr/bin/python3", program, 0o755)
	for _, l := range libraries {
		t.add(l, l, 0o755)
	}
	for _, m := range modules {
		t.add(m, m, 0o644)
	}
	layer, err := t.tree()
	if err != nil {
		return err
	}
	a := newArchive(w)
	a.add(Python, ocispec.ImageConfig{Env: []string{"PATH=/usr/bin"}, Cmd: []string{"/usr/bin/python3"}, WorkingDir: "/"},
		layer)
	return a.close()
}

// sharedLibraries returns what the dynamic linker maps for a program, itself included.
func sharedLibraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("images: ldd %s: %w", program, err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") {
				list = append(list, field)
			}
		}
	}
	return list, nil
}

// omitted are parts of the standard library that no program on a server needs.
var omitted = []string{
	"__pycache__", "test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data",
	"distutils", "dist-packages", "config-3*",
}

// library lists the files of the standard library that lies at dir.
func library(dir string) (list []string, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		if d.IsDir() && slices.ContainsFunc(omitted, func(p string) bool { ok, _ := path.Match(p, d.Name()); return ok }) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			list = append(list, name)
		}
		return nil
	})
	return list, err
}

// rootFS collects files of the machine for an image.
type rootFS struct {
	from map[string]string // by path in the image, without the '/' in front
	mode map[string]int64
}

func newRootFS() *rootFS { return &rootFS{map[string]string{}, map[string]int64{}} }

// add puts the machine's file from at name.
func (r *rootFS) add(name, from string, mode int64) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	r.from[name], r.mode[name] = from, mode
}

// tree returns the files, in order, with the directories above them.
func (r *rootFS) tree() (tree, error) {
	t := tree{dir("dev", 0o755), dir("proc", 0o755), dir("sys", 0o755), dir("tmp", 0o777|sticky)}
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(r.from)) {
		t = append(t, above(name, made)...)
		data, err := os.ReadFile(r.from[name])
		if err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		e := text(name, string(data))
		e.header.Mode = r.mode[name]
		t = append(t, e)
	}
	return t, nil
}

// above returns the directories above a file that have not been made yet, outermost first.
func above(name string, made map[string]bool) tree {
	d := path.Dir(name)
	if made[d] {
		return nil
	}
	made[d] = true
	return append(above(d, made), dir(d, 0o755))
}

package fast

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed _difftest
var difftest embed.FS

// The directories of gVisor that the comparison needs, from the root of its module.
const (
	stateDir = "pkg/state"
	wireDir  = "pkg/state/wire"
	diffDir  = "pkg/difftest"
)

// Compare makes dir, which must not exist, a [Tree] with the package pkg/difftest. Its tests compare gVisor's package
// state with ours. Each is there under an import path of its own. Both save maps in one order.
func Compare(source, dir string) error {
	if err := Tree(source, dir); err != nil {
		return err
	}
	from := map[string]string{"stock": source, "fast": dir}
	for name, root := range from {
		if err := variant(filepath.Join(root, stateDir), filepath.Join(dir, diffDir, name), name); err != nil {
			return err
		}
	}
	if err := extract("_difftest", filepath.Join(dir, diffDir), nil); err != nil {
		return err
	}
	if err := extractFile("bounded.txt", filepath.Join(dir, wireDir, "bounded.go")); err != nil {
		return err
	}
	bounds, err := readPatch(difftest, "_difftest/bounds.patch")
	if err != nil {
		return err
	}
	if err := bounds.apply(dir); err != nil {
		return err
	}
	return sortMaps(filepath.Join(dir, diffDir, "fast", "state", "encode_unsafe.go"))
}

// variant makes at root a copy of package state, gVisor's or ours, and of the graphs that it saves.
func variant(state, root, name string) error {
	entries, err := os.ReadDir(state)
	if err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := copyFile(filepath.Join(state, e.Name()), filepath.Join(root, "state", e.Name())); err != nil {
			return err
		}
	}
	if err := extractFile("sorted.txt", filepath.Join(root, "state", "sorted.go")); err != nil {
		return err
	}
	importPath := strings.NewReplacer(`"gvisor.dev/gvisor/pkg/state"`, `"gvisor.dev/gvisor/pkg/difftest/`+name+`/state"`)
	return extract("_difftest/graph", filepath.Join(root, "graph"), importPath)
}

// sortMaps has our encoder save maps in the order that bounds.patch gives to gVisor's. It is no patch, because lines of
// our encoder move.
func sortMaps(path string) error {
	const random, sorted = "entries := m.MapRange()", "entries := sortedRange(m)"
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("compare encoders: %w", err)
	}
	if n := bytes.Count(data, []byte(random)); n != 1 {
		return fmt.Errorf("compare encoders: our encoder has %q %d times, want once", random, n)
	}
	return writeFile(path, bytes.Replace(data, []byte(random), []byte(sorted), 1))
}

// extract writes the files of Go of an embedded directory to dir. Texts are replaced in them.
func extract(from, dir string, texts *strings.Replacer) error {
	entries, err := fs.ReadDir(difftest, from)
	if err != nil {
		return fmt.Errorf("compare encoders: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		data, err := difftest.ReadFile(from + "/" + e.Name())
		if err != nil {
			return fmt.Errorf("compare encoders: %w", err)
		}
		if texts != nil {
			data = []byte(texts.Replace(string(data)))
		}
		if err := writeFile(filepath.Join(dir, e.Name()), data); err != nil {
			return err
		}
	}
	return nil
}

// extractFile writes an embedded file to where it is compiled.
func extractFile(name, to string) error {
	data, err := difftest.ReadFile("_difftest/" + name)
	if err != nil {
		return fmt.Errorf("compare encoders: %w", err)
	}
	return writeFile(to, data)
}

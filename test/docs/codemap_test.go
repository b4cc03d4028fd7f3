package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	tables "github.com/yuin/goldmark/extension/ast"

	markdown "github.com/yuin/goldmark/ast"
)

// mapHead is the head of the table that is the code map.
var mapHead = []string{"layer", "packages"}

// TestCodeMap: the code map, on the page that has it, names each directory with a package of ours down to the second
// level, and below agent/kube, and no other.
func TestCodeMap(t *testing.T) {
	rows, where := codeMap(t)
	var named []string
	for _, cell := range rows {
		for _, m := range regexp.MustCompile("`([a-z][^`]*)`").FindAllStringSubmatch(cell, -1) {
			named = append(named, m[1])
			if !strings.HasSuffix(m[1], "...") && !packageIn(m[1]) && !packageIn(filepath.Join("storage", m[1])) {
				t.Errorf("%s: the code map has %s, which is no package: correct the row, or remove it", where, m[1])
			}
		}
	}
	for _, dir := range packageDirs(t) {
		if !mapped(dir, named) {
			t.Errorf("%s: the code map lacks %s: add a row that says what it knows", where, dir)
		}
	}
}

// codeMap returns the cells with packages of the code map, and its page.
func codeMap(t *testing.T) (rows []string, where string) {
	t.Helper()
	for path := range pages(t) {
		d := read(t, path)
		mine := false
		walk(d.tree, func(n markdown.Node) {
			switch n.Kind() {
			case tables.KindTableHeader:
				if mine = slices.Equal(cells(n, d.source), mapHead); mine {
					where = path
				}
			case tables.KindTableRow:
				if mine {
					rows = append(rows, cells(n, d.source)[1])
				}
			}
		})
	}
	if len(rows) < 15 {
		t.Fatalf("no page has a table of %q with rows: %q", mapHead, rows)
	}
	return rows, where
}

// packageDirs returns the directories that the map must name.
func packageDirs(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*", "*/*", "agent/kube/*"} {
		for _, room := range []string{"agent", "api", "cmd", "cri", "runsc", "storage"} {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range found {
				dir, _ = filepath.Rel(root, dir)
				if (dir == room || strings.HasPrefix(dir, room+"/")) && packageIn(dir) {
					all = append(all, dir)
				}
			}
		}
	}
	if len(all) < 60 {
		t.Fatalf("%d packages: %q", len(all), all)
	}
	return all
}

// packageIn reports whether a directory has files of Go that are no tests.
func packageIn(dir string) bool {
	files, err := os.ReadDir(filepath.Join(root, dir))
	return err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
		return strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go")
	})
}

// mapped reports whether one of the names in the map is that of a directory: in full, below "dir/...", or of a package
// of storage by its last part.
func mapped(dir string, named []string) bool {
	return slices.ContainsFunc(named, func(name string) bool {
		above, all := strings.CutSuffix(name, "...")
		return name == dir || all && strings.HasPrefix(dir, above) || "storage/"+name == dir
	})
}

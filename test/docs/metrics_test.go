package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetrics: the page of metrics has those that the programs register, and no others. The page on monitoring says of
// each what it tells, and its expressions name no others.
func TestMetrics(t *testing.T) {
	registered := regexp.MustCompile(`(?:Name: |gauge\()"(diapause_\w+)"`)
	var have []string
	for _, dir := range []string{"agent", "cmd", "runsc"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range registered.FindAllSubmatch(b, -1) {
				have = append(have, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(diapause_\\w+)").FindAllSubmatch(page, -1) {
		said = append(said, string(m[1]))
	}
	slices.Sort(have)
	slices.Sort(said)
	if !slices.Equal(have, said) || len(have) < 20 {
		t.Errorf("the programs register\n%v\nthe page has\n%v", have, said)
	}
	monitored(t, have)
}

// monitored checks which metrics the page on monitoring names.
func monitored(t *testing.T, have []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/operations/monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range have {
		if !regexp.MustCompile("(?m)^\\| `" + name + "\\b").Match(page) {
			t.Errorf("docs/operations/monitoring.md does not say what %s tells", name)
		}
	}
	for _, m := range regexp.MustCompile(`diapause_\w+`).FindAll(page, -1) {
		if name := strings.TrimSuffix(string(m), "_bucket"); !slices.Contains(have, name) {
			t.Errorf("docs/operations/monitoring.md has %s, which no program registers", m)
		}
	}
}

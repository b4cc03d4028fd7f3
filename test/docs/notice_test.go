package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotice: NOTICE has the notice of each Go module that a program of the image contains.
func TestNotice(t *testing.T) {
	notice, err := os.ReadFile(filepath.Join(root, "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, p := range linked(t) {
		if seen[p.module] {
			continue
		}
		seen[p.module] = true
		of, err := filepath.Glob(filepath.Join(p.moduleDir, "NOTICE*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range of {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(lines(notice), "\n"+p.module+"\n\n"+lines(want)) {
				t.Errorf("NOTICE lacks that of %s: %s", p.module, path)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d modules", len(seen))
	}
}

// lines returns a text without the spaces that end its lines, and without empty lines at its end.
func lines(s []byte) string {
	all := strings.Split(string(s), "\n")
	for i := range all {
		all[i] = strings.TrimRight(all[i], " \t\r")
	}
	return strings.TrimRight(strings.Join(all, "\n"), "\n")
}

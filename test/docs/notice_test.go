package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNotice: NOTICE has the notice of each Go module that a program of the image contains.
func TestNotice(t *testing.T) {
	notice, err := os.ReadFile(filepath.Join(root, "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}",
		"diapause.dev/cmd/...", "gvisor.dev/gvisor/runsc")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	modules := strings.Fields(string(out)) // path and directory of each, in turn
	seen := make(map[string]bool)
	for m := range slices.Chunk(modules, 2) {
		if seen[m[0]] {
			continue
		}
		seen[m[0]] = true
		of, err := filepath.Glob(filepath.Join(m[1], "NOTICE*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range of {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(lines(notice), "\n"+m[0]+"\n\n"+lines(want)) {
				t.Errorf("NOTICE lacks that of %s: %s", m[0], path)
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

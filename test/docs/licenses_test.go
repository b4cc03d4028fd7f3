package docs

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// licenses has the license of each module in the image. Most licenses ask for that.
const licenses = "THIRD_PARTY_LICENSES"

// licenseFile is a file with a license, or with who holds the copyright.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|patents|unlicense)([.-].*)?$`)

// TestLicenses: the file has the licenses of all modules that a program of the image contains, and Go's own. Each
// module has one. With -update this test writes the file.
func TestLicenses(t *testing.T) {
	of := make(map[string][]string) // the modules that have the same text
	for _, p := range linked(t) {
		found, err := licensesOf(p.dir, p.moduleDir)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Errorf("module %s has no license in %s: may we ship it?", p.module, p.moduleDir)
		}
		for path, text := range found {
			name := p.module
			if below, err := filepath.Rel(p.moduleDir, filepath.Dir(path)); err == nil && below != "." {
				name += "/" + below
			}
			if !slices.Contains(of[text], name) {
				of[text] = append(of[text], name)
			}
		}
	}
	if len(of) < 40 {
		t.Fatalf("%d licenses", len(of))
	}
	path := filepath.Join(root, licenses)
	want := collected(of)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what the modules have now: run go test ./test/docs -run TestLicenses -update (%v)", licenses, err)
	}
}

// pkg is a package in a program of the image.
type pkg struct{ dir, module, moduleDir string }

// linked returns the packages in the programs of the image that are not ours. All of Go's count as one.
func linked(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listed is what linked returns. The go command takes seconds.
var listed = sync.OnceValues(func() ([]pkg, error) {
	const format = "{{with .Module}}{{if not .Main}}{{$.Dir}}\t{{.Path}}\t{{.Dir}}{{end}}{{end}}"
	list := exec.Command("go", "list", "-deps", "-f", format, "diapause.dev/cmd/...", "gvisor.dev/gvisor/runsc")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	dir := strings.TrimSpace(string(goroot))
	all := []pkg{{dir, "Go's standard library", dir}}
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
			all = append(all, pkg{f[0], f[1], f[2]})
		}
	}
	return all, nil
})

// licensesOf returns the texts of license files in dir and above it, up to top, by their paths.
func licensesOf(dir, top string) (map[string]string, error) {
	all := make(map[string]string)
	for {
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if !f.Type().IsRegular() || !licenseFile.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
				continue
			}
			path := filepath.Join(dir, f.Name())
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			all[path] = lines(b)
		}
		if dir == top || len(dir) <= len(top) {
			return all, nil
		}
		dir = filepath.Dir(dir)
	}
}

// collected returns all licenses, each once, behind the modules that have it.
func collected(of map[string][]string) []byte {
	const rule = "================================================================================\n"
	var b bytes.Buffer
	b.WriteString("The programs in the image of Diapause contain the Go modules below. Each text is a license of the " +
		"modules above it,\nor says who holds their copyright. NOTICE has what the modules' own notices say.\n")
	texts := slices.SortedFunc(maps.Keys(of), func(x, y string) int {
		return strings.Compare(slices.Min(of[x])+x, slices.Min(of[y])+y)
	})
	for _, text := range texts {
		names := slices.Sorted(slices.Values(of[text]))
		fmt.Fprintf(&b, "\n%s%s\n\n%s\n", rule, strings.Join(names, "\n"), text)
	}
	return b.Bytes()
}

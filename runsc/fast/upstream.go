package fast

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed patches/UPSTREAM
var upstreamList string

// Module is the path of gVisor's module.
const Module = "gvisor.dev/gvisor"

// None is the digest of a file that does not exist.
const None = "-"

// Upstream is what the patches were made for.
type Upstream struct {
	Version string
	Files   []Touched
}

// Touched is a file of gVisor that the patches change, add or remove, with its SHA-256 before the first patch and after
// the last one. Either may be [None].
type Touched struct{ Path, Before, After string }

// Expected returns what patches/UPSTREAM says.
func Expected() (Upstream, error) { return parseUpstream(upstreamList) }

// heading is the first line of patches/UPSTREAM.
const heading = "# The version of gVisor, and the SHA-256 of every file that is touched, before and after; " +
	"- if there is no such file.\n"

// String returns the text of patches/UPSTREAM: the module with its version, and a line for each file.
func (u Upstream) String() string {
	var s strings.Builder
	s.WriteString(heading + Module + " " + u.Version + "\n")
	for _, f := range u.Files {
		fmt.Fprintf(&s, "%s %s %s\n", f.Before, f.After, f.Path)
	}
	return s.String()
}

func parseUpstream(text string) (Upstream, error) {
	var u Upstream
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case u.Version == "" && len(fields) == 2 && fields[0] == Module:
			u.Version = fields[1]
		case u.Version != "" && len(fields) == 3 && filepath.IsLocal(fields[2]):
			u.Files = append(u.Files, Touched{fields[2], fields[0], fields[1]})
		default:
			return Upstream{}, fmt.Errorf("patches/UPSTREAM: %q is neither a version nor two digests and a path", line)
		}
	}
	return u, nil
}

// checkBefore fails unless each file is in dir as it was when the patches were made. The error names every other one
// and the patches that touch it.
func (u Upstream) checkBefore(dir string, patches []patch) error {
	return u.check(dir, func(f Touched) string { return f.Before }, func(f Touched, got string) error {
		return fmt.Errorf("gVisor's %s is not the one that runsc/fast changes (SHA-256 %s, want %s; %s): see what has "+
			"changed since %s, and whether the patch still fits (make gvisor-rehearsal)",
			f.Path, got, f.Before, touching(patches, f.Path), u.Version)
	})
}

// checkAfter fails unless each file is in dir as it was after the last patch when the list was made.
func (u Upstream) checkAfter(dir string, patches []patch) error {
	return u.check(dir, func(f Touched) string { return f.After }, func(f Touched, got string) error {
		return fmt.Errorf("the patches of runsc/fast make another %s than patches/UPSTREAM says (SHA-256 %s, want %s; %s):"+
			" write patches and list by `go run ./runsc/fast/tree export DIR`",
			f.Path, got, f.After, touching(patches, f.Path))
	})
}

func (u Upstream) check(dir string, want func(Touched) string, wrong func(f Touched, got string) error) error {
	var all []error
	for _, f := range u.Files {
		got, err := digest(filepath.Join(dir, f.Path))
		if err != nil {
			return err
		}
		if got != want(f) {
			all = append(all, wrong(f, got))
		}
	}
	return errors.Join(all...)
}

// checkListed fails if a patch touches a file that is not in the list.
func (u Upstream) checkListed(patches []patch) error {
	listed := map[string]bool{}
	for _, f := range u.Files {
		listed[f.Path] = true
	}
	for _, p := range patches {
		for _, f := range p.files {
			if !listed[pathOf(f)] {
				return fmt.Errorf("%s touches %s, which patches/UPSTREAM does not list: write both by "+
					"`go run ./runsc/fast/tree export DIR`", p.name, pathOf(f))
			}
		}
	}
	return nil
}

// digest returns the digest of a file.
func digest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return None, nil
	}
	if err != nil {
		return "", fmt.Errorf("check gVisor's files: %w", err)
	}
	return Digest(data), nil
}

// Digest returns the digest of a file with that content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

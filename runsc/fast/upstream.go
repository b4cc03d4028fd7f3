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

// none is the digest of a file that does not exist.
const none = "-"

// touched is a file of gVisor that we change, add or remove, with its SHA-256 before and after that. Either may be
// none.
type touched struct{ path, before, after string }

// upstream is what we expect gVisor to be.
type upstream struct {
	version string
	files   []touched
}

// parseUpstream reads the format of patches/UPSTREAM: comments, the module with its version, and a line for each file.
func parseUpstream(text string) (upstream, error) {
	var u upstream
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case u.version == "" && len(fields) == 2 && fields[0] == module:
			u.version = fields[1]
		case u.version != "" && len(fields) == 3 && filepath.IsLocal(fields[2]):
			u.files = append(u.files, touched{fields[2], fields[0], fields[1]})
		default:
			return upstream{}, fmt.Errorf("patches/UPSTREAM: %q is neither a version nor two digests and a path", line)
		}
	}
	return u, nil
}

// module is the path of gVisor's module.
const module = "gvisor.dev/gvisor"

// checkBefore fails unless each file is in dir as it was when our changes were made. The error names every other one.
func (u upstream) checkBefore(dir string) error {
	return u.check(dir, func(f touched) string { return f.before }, "gVisor's %s is not the one that runsc/fast changes "+
		"(SHA-256 %s, want %s): compare it with that of "+module+" "+u.version+", and see whether our change still fits")
}

// checkAfter fails unless each file is in dir as our changes left it when the list was made.
func (u upstream) checkAfter(dir string) error {
	return u.check(dir, func(f touched) string { return f.after }, "runsc/fast makes another %s than patches/UPSTREAM "+
		"says (SHA-256 %s, want %s): write the list anew if that is meant")
}

func (u upstream) check(dir string, want func(touched) string, format string) error {
	var wrong []error
	for _, f := range u.files {
		got, err := digest(filepath.Join(dir, f.path))
		if err != nil {
			return err
		}
		if got != want(f) {
			wrong = append(wrong, fmt.Errorf(format, f.path, got, want(f)))
		}
	}
	return errors.Join(wrong...)
}

// digest returns the SHA-256 of a file, or none if there is no such file.
func digest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return "", fmt.Errorf("check gVisor's files: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

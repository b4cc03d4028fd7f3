package tools

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Debs are Debian packages with all that they depend on, as files, for a root file system of their own.
type Debs struct {
	// Key is a digest of the packages' versions.
	Key string

	names []string // of the packages that were asked for
	files []string // names of the .deb files
}

// FindDebs finds out, without fetching them, which packages make up a root file system with the named ones. It reads
// the package lists of this machine, which has to be Debian, and has them fetched if that does not help.
func FindDebs(ctx context.Context, cache string, names ...string) (Debs, error) {
	d := Debs{names: names}
	none := filepath.Join(cache, "none") // apt does not list what it has already
	out, err := d.apt(ctx, none, "--print-uris")
	if err != nil {
		if err := aptGet(ctx, "update"); err != nil {
			return d, err
		}
		if out, err = d.apt(ctx, none, "--print-uris"); err != nil {
			return d, err
		}
	}
	sum := sha256.New()
	for line := range strings.Lines(out) { // 'address' file size [digest]; the file's name has the version
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return d, fmt.Errorf("tools: apt-get --print-uris: %.200q", line)
		}
		d.files = append(d.files, fields[1])
		fmt.Fprintln(sum, fields[1])
	}
	d.Key = fmt.Sprintf("%x", sum.Sum(nil)[:6])
	return d, nil
}

// Fetch fetches what is not in the cache yet, and returns the paths of all packages' files.
func (d Debs) Fetch(ctx context.Context, cache string) (paths []string, err error) {
	if _, err := d.apt(ctx, cache, "--download-only"); err != nil {
		return nil, err
	}
	for _, f := range d.files {
		paths = append(paths, filepath.Join(cache, f))
	}
	return paths, nil
}

// apt calls apt-get install as for a machine on which nothing is installed. Nothing is changed outside of the cache.
func (d Debs) apt(ctx context.Context, cache, do string) (string, error) {
	cache, err := filepath.Abs(cache)
	if err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(cache, "partial"), 0o755); err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	status := filepath.Join(cache, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	args := []string{
		"-o", "Dir::State::status=" + status, "-o", "Dir::Cache::archives=" + cache, "-o", "Dir::Cache::pkgcache=",
		"-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=1", "-o", "Acquire::Retries=3",
		"--no-install-recommends", "-qq", "-y", do, "install",
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(args, d.names...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tools: apt-get install %s %s: %w\n%s", do, strings.Join(d.names, " "), err, stderr.String())
	}
	return string(out), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"diapause.dev/runsc/fast"
)

// repository is a git repository of gVisor. A commit with a version's name has that version; those after it are the
// patches.
type repository string

const (
	committer = "Diapause"
	address   = "noreply@diapause.dev"
)

func (r repository) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, string(r), r.settings(), "git", args...)
}

// settings are variables that keep the settings of users and machines out of what is written, and repositories around
// this one.
func (r repository) settings() []string {
	return []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(string(r)),
		"GIT_COMMITTER_NAME=" + committer, "GIT_COMMITTER_EMAIL=" + address,
		"GIT_AUTHOR_NAME=" + committer, "GIT_AUTHOR_EMAIL=" + address,
	}
}

// commitVersion commits the files of a version of gVisor, which are in place.
func (r repository) commitVersion(ctx context.Context, version string) (commit string, err error) {
	if _, err := r.git(ctx, "add", "--all", "--force"); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, "commit", "--quiet", "--allow-empty", "--message="+fast.Module+" "+version); err != nil {
		return "", err
	}
	return line(r.git(ctx, "rev-parse", "HEAD"))
}

// edit makes dir a repository of the gVisor at source with one commit for each patch, on the branch series. It returns
// the commit before the first patch.
func edit(ctx context.Context, dir, source, version, patches string) (base string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("edit the patches: %w", err)
	}
	if err := fast.CopyModule(source, dir); err != nil {
		return "", err
	}
	r := repository(dir)
	if _, err := r.git(ctx, "init", "--quiet", "--initial-branch=series"); err != nil {
		return "", err
	}
	if base, err = r.commitVersion(ctx, version); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(patches, "*.patch")) // sorted
	if err != nil {
		return "", fmt.Errorf("edit the patches: %w", err)
	}
	_, err = r.git(ctx, append([]string{"am", "--quiet"}, files...)...)
	return base, err
}

// export writes the commits of the repository at dir, from the last version of gVisor on, as patches, and UPSTREAM.
func export(ctx context.Context, dir, patches string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("export the patches: %w", err)
	}
	r := repository(dir)
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("export the patches: %s has changes that are in no commit: commit or remove them\n%s", dir, changed)
	}
	base, err := r.git(ctx, "log", "--max-count=1", "--format=%H %s", "--grep=^"+regexp.QuoteMeta(fast.Module)+" v")
	if err != nil {
		return err
	}
	fields := strings.Fields(base) // the commit, the module, its version
	if len(fields) != 3 {
		return fmt.Errorf("export the patches: no commit in %s is named after a version: was it made by tree edit?", dir)
	}
	upstream, err := r.touched(ctx, fields[0])
	if err != nil {
		return err
	}
	upstream.Version = fields[2]
	if err := r.formatPatches(ctx, fields[0], patches); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(patches, "UPSTREAM"), []byte(upstream.String()), 0o644); err != nil {
		return fmt.Errorf("export the patches: %w", err)
	}
	return nil
}

// touched returns the files that differ between a commit and HEAD.
func (r repository) touched(ctx context.Context, base string) (u fast.Upstream, err error) {
	list, err := r.git(ctx, "diff", "--no-renames", "--name-only", "-z", base, "HEAD")
	if err != nil {
		return u, err
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		f := fast.Touched{Path: path}
		if f.Before, err = r.digest(ctx, base, path); err != nil {
			return u, err
		}
		if f.After, err = r.digest(ctx, "HEAD", path); err != nil {
			return u, err
		}
		u.Files = append(u.Files, f)
	}
	return u, nil
}

// digest returns the digest of a file in a commit, or [fast.None].
func (r repository) digest(ctx context.Context, commit, path string) (string, error) {
	found, err := r.git(ctx, "ls-tree", "--name-only", commit, "--", path)
	if err != nil || found == "" {
		return fast.None, err
	}
	data, err := r.git(ctx, "cat-file", "blob", commit+":"+path)
	return fast.Digest([]byte(data)), err
}

// formatPatches writes the commits since base in place of all patches there, without dates and commit IDs: one series
// has one text.
func (r repository) formatPatches(ctx context.Context, base, patches string) error {
	temp, err := os.MkdirTemp("", "patches-")
	if err != nil {
		return fmt.Errorf("export the patches: %w", err)
	}
	defer os.RemoveAll(temp)
	_, err = r.git(ctx, "format-patch", "--quiet", "--zero-commit", "--no-numbered", "--no-signature", "--full-index",
		"--no-renames", "--output-directory="+temp, base)
	if err != nil {
		return err
	}
	old, errOld := filepath.Glob(filepath.Join(patches, "*.patch"))
	written, errWritten := filepath.Glob(filepath.Join(temp, "*.patch"))
	if err := errors.Join(errOld, errWritten); err != nil {
		return fmt.Errorf("export the patches: %w", err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("export the patches: %w", err)
		}
	}
	for _, path := range written {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(patches, filepath.Base(path)), undated(data), 0o644)
		}
		if err != nil {
			return fmt.Errorf("export the patches: %w", err)
		}
	}
	return nil
}

// undated removes the date from the header of a patch.
func undated(data []byte) []byte {
	header, rest, _ := strings.Cut(string(data), "\n\n")
	lines := slices.DeleteFunc(strings.Split(header, "\n"), func(l string) bool { return strings.HasPrefix(l, "Date: ") })
	return []byte(strings.Join(lines, "\n") + "\n\n" + rest)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"diapause.dev/runsc/fast"
)

// rehearsal tries the patches with another version of gVisor, and reports what it finds. It changes nothing but dir.
type rehearsal struct {
	expected fast.Upstream
	before   string // gVisor as the patches know it
	after    string // the other version
	version  string // its name
	patches  string
	dir      string // the repository that is made; it must not exist
	out      io.Writer

	repo   repository
	failed []string // patches that do not apply
}

// run makes the repository: the version before with the patches on the branch series, and the version after with those
// that apply on the branch rehearsal.
func (r *rehearsal) run(ctx context.Context) error {
	fmt.Fprintf(r.out, "gVisor before: %s\ngVisor after:  %s\n\n", r.expected.Version, r.version)
	if err := r.reportFiles(); err != nil {
		return err
	}
	base, err := edit(ctx, r.dir, r.before, r.expected.Version, r.patches)
	if err != nil {
		return err
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	r.repo = repository(r.dir)
	if err := r.upgrade(ctx, base); err != nil {
		return err
	}
	commits, err := r.repo.git(ctx, "rev-list", "--reverse", base+"..series")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.patches, "*.patch"))
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	for i, commit := range strings.Fields(commits) {
		what, err := r.try(ctx, commit, files[i])
		if err != nil {
			return err
		}
		fmt.Fprintf(r.out, "%s: %s\n", filepath.Base(files[i]), what)
	}
	return nil
}

// reportFiles says which of the touched files the other version has changed.
func (r *rehearsal) reportFiles() error {
	same := 0
	for _, f := range r.expected.Files {
		data, err := os.ReadFile(filepath.Join(r.after, f.Path))
		got := fast.None
		switch {
		case err == nil:
			got = fast.Digest(data)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("rehearse: %w", err)
		}
		switch {
		case got == f.Before:
			same++
		case got == fast.None:
			fmt.Fprintf(r.out, "%s: gone\n", f.Path)
		case f.Before == fast.None:
			fmt.Fprintf(r.out, "%s: gVisor has such a file now\n", f.Path)
		default:
			fmt.Fprintf(r.out, "%s: changed\n", f.Path)
		}
	}
	fmt.Fprintf(r.out, "%d of %d touched files are as they were\n\n", same, len(r.expected.Files))
	return nil
}

// upgrade commits the other version on top of base, on the branch rehearsal.
func (r *rehearsal) upgrade(ctx context.Context, base string) error {
	if _, err := r.repo.git(ctx, "checkout", "--quiet", "-b", "rehearsal", base); err != nil {
		return err
	}
	if _, err := r.repo.git(ctx, "rm", "-r", "--quiet", "."); err != nil {
		return err
	}
	if err := os.CopyFS(r.dir, os.DirFS(r.after)); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	_, err := r.repo.commitVersion(ctx, r.version)
	return err
}

// try applies one patch to what the branch has, and says how that went. One that fails is left out.
func (r *rehearsal) try(ctx context.Context, commit, file string) (string, error) {
	_, errExact := r.repo.git(ctx, "apply", "--check", file)
	_, err := r.repo.git(ctx, "cherry-pick", "--allow-empty", commit)
	if err == nil {
		exact, errMoved := r.exact(ctx, commit)
		switch {
		case errMoved != nil:
			return "", errMoved
		case errExact == nil && exact:
			return "applies", nil
		case errExact == nil:
			return "fuzzes: it applies at other lines", nil
		}
		return "fuzzes: a merge of three versions applies it", nil
	}
	conflicts, errList := r.repo.git(ctx, "diff", "--name-only", "--diff-filter=U")
	if errList != nil {
		return "", errList
	}
	if conflicts == "" {
		if _, errSkip := r.repo.git(ctx, "cherry-pick", "--skip"); errSkip != nil {
			return "", errors.Join(err, errSkip)
		}
		return "gVisor has it: drop the patch", nil
	}
	r.failed = append(r.failed, filepath.Base(file))
	if _, err := r.repo.git(ctx, "cherry-pick", "--abort"); err != nil {
		return "", err
	}
	return "fails: conflicts in " + strings.Join(strings.Fields(conflicts), ", "), nil
}

// exact reports whether the commit that was made last has the same lines in the same places as another one.
func (r *rehearsal) exact(ctx context.Context, commit string) (bool, error) {
	var texts []string
	for _, c := range []string{commit, "HEAD"} {
		text, err := r.repo.git(ctx, "diff", "--no-renames", c+"^", c)
		if err != nil {
			return false, err
		}
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "index ") })
		texts = append(texts, strings.Join(lines, "\n"))
	}
	return texts[0] == texts[1], nil
}

// build builds runsc from the branch rehearsal, with the other modules that the module at root has, and runs the tests
// that patches bring.
func (r *rehearsal) build(ctx context.Context, root string) error {
	if len(r.failed) > 0 {
		return fmt.Errorf("rehearse: %d patches fail, so nothing was built. In %s, branch series has all patches and "+
			"branch rehearsal those that apply: cherry-pick the others, and run `go run ./runsc/fast/tree export %[2]s`",
			len(r.failed), r.dir)
	}
	temp, err := os.MkdirTemp("", "rehearsal-")
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	defer os.RemoveAll(temp)
	tree := filepath.Join(temp, "gvisor")
	if _, err := r.repo.git(ctx, "clone", "--quiet", "--branch=rehearsal", r.dir, tree); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(temp, name), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("rehearse: %w", err)
		}
	}
	for _, step := range r.steps(tree, filepath.Join(temp, "precompile"), filepath.Join(temp, "runsc")) {
		if _, err := output(ctx, temp, buildEnv, step[0], step[1:]...); err != nil {
			fmt.Fprintln(r.out, "\nAll patches apply, and what they make does not build, or its tests fail.")
			return err
		}
	}
	fmt.Fprintln(r.out, "\nAll patches apply, runsc builds, and the patches' own tests pass.")
	return nil
}

// buildEnv is as for the programs that are kept, so that what was compiled for these is not compiled again. Another
// gVisor may need other modules.
var buildEnv = []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=mod"}

// steps are the commands that build and test.
func (r *rehearsal) steps(tree, precompile, runsc string) [][]string {
	build := []string{"go", "build", "-trimpath", "-buildvcs=false", "-o"}
	return [][]string{
		{"go", "mod", "edit", "-replace", fast.Module + "=./" + filepath.Base(tree)},
		append(slices.Clone(build), precompile, fast.Module+"/"+fast.Precompile),
		{precompile, tree},
		append(slices.Clone(build), runsc, fast.Module+"/runsc"),
		append([]string{"go", "test", "-trimpath", "-count=1"}, r.tested()...),
	}
}

// tested are the packages that patches bring tests for.
func (r *rehearsal) tested() (packages []string) {
	for _, f := range r.expected.Files {
		if strings.HasSuffix(f.Path, "_test.go") {
			packages = append(packages, fast.Module+"/"+path.Dir(f.Path))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(packages)))
}

package fast

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

//go:embed patches/*.patch
var patchFiles embed.FS

// patch is one change of gVisor, as `git format-patch` writes it.
type patch struct {
	name  string // of its file
	files []*gitdiff.File
}

// series returns all patches, in the order in which they are applied.
func series() ([]patch, error) {
	names, err := fs.Glob(patchFiles, "patches/*.patch") // sorted
	if err != nil {
		return nil, fmt.Errorf("read the patches: %w", err)
	}
	var all []patch
	for _, name := range names {
		p, err := readPatch(patchFiles, name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func readPatch(from fs.FS, name string) (patch, error) {
	f, err := from.Open(name)
	if err != nil {
		return patch{}, fmt.Errorf("read the patches: %w", err)
	}
	defer f.Close()
	files, _, err := gitdiff.Parse(f)
	if err != nil {
		return patch{}, fmt.Errorf("read %s: %w", name, err)
	}
	if len(files) == 0 {
		return patch{}, fmt.Errorf("read %s: it changes no file", name)
	}
	return patch{name, files}, nil
}

// apply applies the patch to the tree at dir. It takes no other line and no other context than the patch names.
func (p patch) apply(dir string) error {
	for _, f := range p.files {
		if err := applyFile(f, dir); err != nil {
			return fmt.Errorf("apply %s to gVisor's %s: %w", p.name, pathOf(f), err)
		}
	}
	return nil
}

func applyFile(f *gitdiff.File, dir string) error {
	if !filepath.IsLocal(pathOf(f)) || f.IsRename || f.IsCopy || f.IsBinary {
		return errors.New("a patch may change, add and remove files of text below the root: make it with --no-renames")
	}
	path := filepath.Join(dir, pathOf(f))
	var before []byte
	var err error
	if f.IsNew {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return errors.New("the patch adds a file that is there already")
		}
	} else if before, err = os.ReadFile(path); err != nil {
		return err
	}
	var after bytes.Buffer
	if err := gitdiff.Apply(&after, bytes.NewReader(before), f); err != nil {
		return err
	}
	if f.IsDelete {
		return os.Remove(path)
	}
	return writeFile(path, after.Bytes())
}

// pathOf is the path of a file that a patch changes, adds or removes.
func pathOf(f *gitdiff.File) string {
	if f.IsDelete {
		return f.OldName
	}
	return f.NewName
}

// touching names the patches that touch a file.
func touching(all []patch, path string) string {
	var names []string
	for _, p := range all {
		if slices.ContainsFunc(p.files, func(f *gitdiff.File) bool { return pathOf(f) == path }) {
			names = append(names, p.name)
		}
	}
	if names == nil {
		return "no patch touches it"
	}
	return "see " + strings.Join(names, ", ")
}

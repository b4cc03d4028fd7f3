package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"diapause.dev/storage"
)

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	start := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		start = prefix[:i]
		if err := storage.ValidateObject(start); err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
	}
	var stopped error // of fn
	err := fs.WalkDir(b.root.FS(), start, func(name string, d fs.DirEntry, err error) error {
		if ctxErr := ctx.Err(); ctxErr != nil {
			return ctxErr
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since its parent was read
		case err != nil:
			return err
		case d.IsDir():
			return enter(name, prefix)
		case !strings.HasPrefix(name, prefix):
			return nil
		}
		if stopped = show(name, d, fn); stopped != nil {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil {
		return stopped
	}
	return fmt.Errorf("list %q: %w", prefix, classify(err))
}

// enter returns fs.SkipDir if a directory cannot hold objects with the prefix.
func enter(name, prefix string) error {
	if name == "." {
		return nil
	}
	if name[0] == '.' || !strings.HasPrefix(name+"/", prefix) && !strings.HasPrefix(prefix, name+"/") {
		return fs.SkipDir
	}
	return nil
}

// show calls fn for a file that is an object.
func show(name string, d fs.DirEntry, fn func(storage.ObjectInfo) error) error {
	if !d.Type().IsRegular() || storage.ValidateObject(name) != nil {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return nil // gone since its directory was read
	}
	return fn(storage.ObjectInfo{Name: name, Size: info.Size(), Modified: info.ModTime()})
}

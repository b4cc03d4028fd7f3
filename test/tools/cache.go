package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/gofrs/flock"
)

// Cache is the environment variable that names the directory for [CacheDir].
const Cache = "DIAPAUSE_CACHE"

// CacheDir returns the directory that keeps the programs that take minutes to build, for all checkouts. It is the one
// that [Cache] names, by default diapause in the user's cache directory. A user who has none keeps the programs in the
// checkout.
func CacheDir() (string, error) {
	if dir := os.Getenv(Cache); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("tools: %s=%s is a relative path: set it to one that begins with /, because the go command "+
				"runs tests in many directories", Cache, dir)
		}
		return filepath.Clean(dir), nil
	}
	if dir, err := os.UserCacheDir(); err == nil && filepath.IsAbs(dir) {
		return filepath.Join(dir, "diapause"), nil
	}
	root, err := moduleRoot()
	return filepath.Join(root, ".cache", "tools"), err
}

// A cache holds, for each group NAME: directories NAME-KEY with the programs, complete; directories
// NAME-KEY.part-RANDOM, in which a build is under way or was cut short; and the file NAME.lock. Who makes or removes
// directories of NAME holds that lock.
var kept = regexp.MustCompile(`^([a-z-]+)-[0-9a-f]{12}(\.part-[A-Z0-9]+)?$`)

func lockPath(cache, name string) string { return filepath.Join(cache, name+".lock") }

// lockGroup takes the lock of a group. It returns ctx's error if ctx ends while another process holds it.
func lockGroup(ctx context.Context, cache, name string) (*flock.Flock, error) {
	for said := false; ; said = true {
		lock, err := tryLockGroup(cache, name)
		if lock != nil || err != nil {
			return lock, err
		}
		if !said {
			fmt.Fprintf(os.Stderr, "tools: waiting for another process that builds %s\n", name)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("tools: wait for another process that builds %s: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryLockGroup is lockGroup for who does not wait: it returns nil if another process holds the lock.
func tryLockGroup(cache, name string) (*flock.Flock, error) {
	lock := flock.New(lockPath(cache, name), flock.SetPermissions(0o644))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("tools: lock %s: %w", lock, err)
	}
	if !locked {
		return nil, nil
	}
	if !seen(lock) {
		return nil, lock.Close() // Clean has removed the file since it was opened
	}
	return lock, nil
}

// seen reports whether others that take the lock find the same file.
func seen(lock *flock.Flock) bool {
	mine, errMine := lock.Stat()
	there, errThere := os.Stat(lock.Path())
	return errMine == nil && errThere == nil && os.SameFile(mine, there)
}

// sweep removes what builds left that were cut short. The caller holds the lock of the group called name.
func sweep(cache, name string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	for _, e := range entries {
		m := kept.FindStringSubmatch(e.Name())
		if m == nil || m[2] == "" || !e.IsDir() {
			continue
		}
		if err := sweepOne(cache, name, m[1], e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// sweepOne removes the directory dir of the group called of, unless another process is building it.
func sweepOne(cache, name, of, dir string) error {
	if of != name {
		lock, err := tryLockGroup(cache, of)
		if lock == nil {
			return err
		}
		defer lock.Close()
	}
	if err := os.RemoveAll(filepath.Join(cache, dir)); err != nil {
		return fmt.Errorf("tools: remove what a build left that was cut short: %w", err)
	}
	return nil
}

// Clean removes the programs that are kept for all checkouts. It waits for builds that are under way. What [Build] has
// not put there stays, and is named on standard error.
func Clean(ctx context.Context) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(cache); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if err := cleanGroup(ctx, cache, name); err != nil {
			return err
		}
	}
	left, err := os.ReadDir(cache)
	if err == nil && len(left) == 0 {
		err = os.Remove(cache)
	}
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	for _, e := range left {
		fmt.Fprintf(os.Stderr, "tools: left in place, for it is not from here: %s\n", filepath.Join(cache, e.Name()))
	}
	return nil
}

func cleanGroup(ctx context.Context, cache, name string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	mine := func(e os.DirEntry) bool {
		m := kept.FindStringSubmatch(e.Name())
		return m != nil && m[1] == name && e.IsDir() || e.Name() == name+".lock" && e.Type().IsRegular()
	}
	if !slices.ContainsFunc(entries, mine) {
		return nil
	}
	lock, err := lockGroup(ctx, cache, name)
	if err != nil {
		return err
	}
	defer lock.Close()
	if entries, err = os.ReadDir(cache); err != nil { // others, once a build has ended
		return fmt.Errorf("tools: %w", err)
	}
	for _, e := range entries {
		if !mine(e) || !e.IsDir() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
			return fmt.Errorf("tools: %w", err)
		}
	}
	if err := os.Remove(lock.Path()); err != nil { // last, while it is held
		return fmt.Errorf("tools: %w", err)
	}
	return nil
}

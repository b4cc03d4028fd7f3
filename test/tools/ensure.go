package tools

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ensureAll returns the directories of groups, see ensure.
func ensureAll(ctx context.Context, groups []group) ([]string, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, g := range groups {
		dir, err := g.ensure(ctx, cache)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// ensure returns the directory that holds the programs of the group, built now
// if they are not there. A build that is cut short leaves nothing under that name.
func (g group) ensure(ctx context.Context, cache string) (string, error) {
	key, err := g.key(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, g.name+"-"+key)
	if g.missing(dir) == "" {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("tools: make the directory for built programs (%s names another): %w", Cache, err)
	}
	lock, err := lockGroup(ctx, cache, g.name)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if g.missing(dir) == "" { // another process has built it
		return dir, nil
	}
	if err := sweep(cache, g.name); err != nil {
		return "", err
	}
	return dir, g.make(ctx, dir)
}

// missing names a program of the group that is not in dir. It returns "" if all are.
func (g group) missing(dir string) string {
	for _, name := range g.programs() {
		if !isFile(filepath.Join(dir, name)) {
			return name
		}
	}
	return ""
}

// make builds the programs of the group, and then puts them at dir, in place of what is left there. The caller holds
// the group's lock.
func (g group) make(ctx context.Context, dir string) error {
	fmt.Fprintf(os.Stderr, "tools: building %s (about %s on two cores, once)\n", g.name, g.estimate)
	start := time.Now()
	// No two builds share a name: what one has started may live on when that one is killed.
	part := dir + ".part-" + rand.Text()[:8]
	if err := os.Mkdir(part, 0o755); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	defer os.RemoveAll(part)
	if err := g.makeIn(ctx, part); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	if err := os.Rename(part, dir); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	fmt.Fprintf(os.Stderr, "tools: built %s in %s\n", g.name, time.Since(start).Round(time.Second))
	return nil
}

// makeIn builds the programs of the group into dir.
func (g group) makeIn(ctx context.Context, dir string) error {
	build := g.build
	if build == nil {
		build = func(ctx context.Context, out string) error {
			_, err := goOutputIn(ctx, g.module, groupEnv, buildArgs(out, g.ldflags, g.packages...)...)
			return err
		}
	}
	if err := build(ctx, dir+"/"); err != nil {
		return err
	}
	for from, to := range g.renamed {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("tools: %w", err)
		}
	}
	if name := g.missing(dir); name != "" {
		return fmt.Errorf("tools: the build of %s made no %s", g.name, name)
	}
	return nil
}

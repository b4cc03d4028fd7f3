package fidelity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// fileSize is the size of a file that is written and checked, in bytes.
const fileSize = 64 << 10

// fileBeat is the time between two steps of a check of files.
const fileBeat = 10 * time.Millisecond

// contents are the bytes of one version of a file.
func contents(seed, version uint64) []byte {
	b := make([]byte, fileSize)
	chacha := rand.NewChaCha8([32]byte{
		byte(seed), byte(version), byte(version >> 8), byte(version >> 16),
		byte(version >> 24),
	})
	_, _ = chacha.Read(b) // never fails
	return b
}

// versions is a file that is checked and then overwritten, again and again.
type versions struct {
	seed, version uint64
}

// step wants the present version in f and writes the next.
func (v *versions) step(f *os.File) error {
	b := make([]byte, fileSize+1)
	n, err := f.ReadAt(b, 0)
	if n != fileSize {
		return fmt.Errorf("%s: %d bytes, want %d: %v", f.Name(), n, fileSize, err)
	}
	if !bytes.Equal(b[:n], contents(v.seed, v.version)) {
		return fmt.Errorf("%s: not the bytes of version %d", f.Name(), v.version)
	}
	if _, err := f.WriteAt(contents(v.seed, v.version+1), 0); err != nil {
		return err
	}
	v.version++
	return nil
}

// stepAt does the same to the file that a path leads to.
func (v *versions) stepAt(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(v.step(f), f.Close())
}

// files begins the checks of files by name, deleted, renamed, and on tmpfs.
func (s *Suite) files() error {
	for i, start := range []func(seed uint64) error{s.plain, s.deleted, s.renamed, s.tmpfs} {
		if err := start(uint64(i + 1)); err != nil {
			return fmt.Errorf("files: %w", err)
		}
	}
	return nil
}

func (s *Suite) plain(seed uint64) error    { return s.named("file", s.options.Dir, seed) }
func (s *Suite) tmpfs(seed uint64) error    { return s.named("tmpfs", s.options.Tmpfs, seed) }
func (s *Suite) path(name string) string    { return filepath.Join(s.options.Dir, name) }
func create(path string, seed uint64) error { return os.WriteFile(path, contents(seed, 0), 0o600) }

func (s *Suite) named(name, dir string, seed uint64) error {
	path := filepath.Join(dir, name)
	if err := create(path, seed); err != nil {
		return err
	}
	v := versions{seed: seed}
	s.every(s.record(name), fileBeat, func() error { return v.stepAt(path) })
	return nil
}

// deleted has a file that is open and has no name any more.
func (s *Suite) deleted(seed uint64) error {
	path := s.path("deleted")
	if err := create(path, seed); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.closes(f)
	if err := os.Remove(path); err != nil {
		return err
	}
	v := versions{seed: seed}
	s.every(s.record("deleted"), fileBeat, func() error { return errors.Join(absent(path), unlinked(f), v.step(f)) })
	return nil
}

func absent(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there again: %v", path, err)
	}
	return nil
}

func unlinked(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if n := fi.Sys().(*syscall.Stat_t).Nlink; n != 0 {
		return fmt.Errorf("%s: has %d links, want none", f.Name(), n)
	}
	return nil
}

// renamed has a file that is known by its second name only.
func (s *Suite) renamed(seed uint64) error {
	before, after := s.path("before"), s.path("after")
	if err := create(before, seed); err != nil {
		return err
	}
	if err := os.Rename(before, after); err != nil {
		return err
	}
	v := versions{seed: seed}
	s.every(s.record("renamed"), fileBeat, func() error { return errors.Join(absent(before), v.stepAt(after)) })
	return nil
}

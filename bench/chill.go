package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// chill leaves a snapshot to the store alone, and the store's files to the disk. back gives the node
// its own copy again.
func chill() (back func() error, err error) {
	away := spoolDir + ".away"
	if err := os.Rename(spoolDir, away); err != nil {
		return nil, fmt.Errorf("take the snapshot from the spool: %w", err)
	}
	back = func() error {
		// A reader may have found the directory gone and made it again.
		if err := os.RemoveAll(spoolDir); err != nil {
			return err
		}
		return os.Rename(away, spoolDir)
	}
	if err := filepath.WalkDir(storeDir, uncache); err != nil {
		return nil, fmt.Errorf("take the store from the page cache: %w", err)
	}
	return back, nil
}

// uncache is an fs.WalkDirFunc that drops what the kernel holds of a file in memory.
func uncache(path string, d fs.DirEntry, err error) error {
	if err != nil || !d.Type().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only clean pages are dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

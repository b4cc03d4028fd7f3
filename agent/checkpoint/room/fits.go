package room

import (
	"fmt"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// Fits refuses a sandbox with more memory and files than a snapshot can hold, before it is paused. It does not count
// what the sandbox allocates afterwards. If that is too much, the checkpoint fails after the pause.
func (r *Room) Fits(sandboxPID int, volumes int64) error {
	windows, err := pageWindows(sandboxPID)
	if err != nil {
		return fmt.Errorf("pod %s: %w", r.pod, err)
	}
	r.mostPages = 2*windows*snapshots.ChunkSize + growth
	if r.scope == snapshot.RootfsOnly {
		if err := filesFit(sandboxPID, volumes); err != nil {
			return fmt.Errorf("pod %s: %w", r.pod, err)
		}
		return nil
	}
	if err := enough(volumes/snapshots.ChunkSize+windows, storage.MaxChunks); err != nil {
		return fmt.Errorf("pod %s: %w", r.pod, err)
	}
	return nil
}

// pageWindows returns in how many pieces of ChunkSize a sandbox has anything in its memory and in its files.
func pageWindows(sandboxPID int) (windows int64, err error) {
	files, err := runsc.PageFiles(sandboxPID)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, f := range files {
		n, err := capture.Windows(f, snapshots.ChunkSize)
		if err != nil {
			return 0, err
		}
		windows += n
	}
	return windows, nil
}

// filesFit is the rest of Fits for a snapshot of files alone. It does not count the files that the sentry keeps in its
// memory: only the sentry knows their size.
func filesFit(sandboxPID int, volumes int64) error {
	onDisk, err := runsc.FileStoreUsage(sandboxPID)
	if err != nil {
		return err
	}
	return enough((onDisk+volumes)/snapshots.ChunkSize, storage.MaxChunks)
}

// enough returns an error with the figures if there are more chunks than a snapshot may have.
func enough(chunks, most int64) error {
	if chunks <= most {
		return nil
	}
	const perGiB = 1 << 30 / snapshots.ChunkSize
	return fmt.Errorf("%w: its memory and files take %d pieces of %d KiB (%d GiB if they are full), and a snapshot "+
		"holds %d (%d GiB): "+
		"have it use less memory", storage.ErrTooManyChunks, chunks, snapshots.ChunkSize>>10, (chunks+perGiB-1)/perGiB, most,
		most/perGiB)
}

package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Stored calls fn for each snapshot in the store at a location, in no particular order. It reads no manifest. An error
// of fn ends the listing and is returned.
func (c *Catalog) Stored(ctx context.Context, location string, fn func(storage.Listed) error) error {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return err
	}
	return s.List(ctx, "", fn)
}

// ProbeStore returns why the store at a location does not answer, or nil if it does.
func (c *Catalog) ProbeStore(ctx context.Context, location string) error {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return err
	}
	return s.Probe(ctx)
}

// StoredManifest returns the manifest of a snapshot from the store at a location.
func (c *Catalog) StoredManifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return nil, err
	}
	return s.Manifest(ctx, k)
}

// RemoveStored removes a snapshot from the store at a location if it still has that UID. It fails while a restore on
// this node reads the snapshot. It is no error if the store does not have it.
func (c *Catalog) RemoveStored(ctx context.Context, k snapshot.Key, uid, location string) error {
	if c.readers.Using(k) {
		return fmt.Errorf("remove snapshot %s: %w", k, errkind.ErrInUse)
	}
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	m, err := s.Manifest(ctx, k)
	if err == nil && m.Meta.UID == uid {
		err = s.Remove(ctx, k)
	}
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// SweepStore removes from the store at a location everything that no snapshot there names and that is old enough: no
// writer is about to name it.
func (c *Catalog) SweepStore(ctx context.Context, location string) (storage.SweepResult, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return storage.SweepResult{}, err
	}
	return s.Sweep(ctx, storage.SweepOptions{})
}

// diskTypes are file systems that two nodes never share.
var diskTypes = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC,
}

// OwnDisk reports whether the store at a location is certainly on a disk of this node that no other node can see.
func (c *Catalog) OwnDisk(location string) bool {
	path, ok := strings.CutPrefix(location, "dir:")
	var st unix.Statfs_t
	return ok && unix.Statfs(path, &st) == nil && slices.Contains(diskTypes, int64(st.Type))
}

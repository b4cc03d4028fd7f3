package checkpoint

import (
	"context"

	"diapause.dev/agent/outside"
	"diapause.dev/agent/volumes"
	"diapause.dev/api/snapshot"
)

// findVolumes finds the volumes that the snapshot will hold, and reads them before the pause.
func (c *checkpoint) findVolumes(ctx context.Context) (err error) {
	o := volumes.Config{
		Spool: c.cs.Stores.SpoolDir(), Encrypted: c.cs.Stores.Encrypted(), Limit: c.cs.VolumeLimit, Logger: c.log,
	}
	if c.volumes, err = volumes.Find(o, c.pod, c.meta.Pod, c.o.Scope); err != nil {
		return err
	}
	return c.volumes.Warm(ctx)
}

// findOutside finds the files of volumes that are not part of the snapshot, just before the pause. A snapshot of files
// alone has no memory that could be older.
func (c *checkpoint) findOutside() {
	if c.o.Scope == snapshot.WholePod {
		c.outside = outside.Find(c.pod, c.meta.Pod)
	}
}

// captureVolumes copies the volumes while the sandbox is paused, and notes how those are that are not part of the
// snapshot.
func (c *checkpoint) captureVolumes(ctx context.Context) error {
	c.meta.Volumes = c.outside.Note()
	return c.volumes.Capture(ctx)
}

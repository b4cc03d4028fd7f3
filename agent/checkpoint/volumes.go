package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/outside"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// onNode is an emptyDir volume whose files are on the node, not inside the sandbox, while it is captured and stored.
type onNode struct {
	name   string
	dir    *os.File        // nil once it has been captured
	stream *capture.Stream // empty until it has been captured
}

// findVolumes finds out which emptyDir volumes the containers have mounted from the node.
func (c *checkpoint) findVolumes() error {
	mounts, err := cri.Mounts(c.meta.Pod)
	if err != nil {
		return err
	}
	found := make(map[string]mounted)
	for path := range mounts {
		if name, whole, ok := kubelet.Mounted(c.pod.UID, path); ok {
			m := found[name]
			found[name] = mounted{whole: m.whole || whole, part: m.part || !whole}
		} else if kubelet.Elsewhere(c.pod.UID, path) {
			c.log.Warn("a volume is not part of the snapshot: it is looked for in "+kubelet.Root, "path", path)
		}
	}
	if len(found) == 0 {
		return nil
	}
	root, err := runsc.NodeRoot(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	inside, err := runsc.Inside(c.pod.SandboxPID, c.pod.ID)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := c.addVolume(root, name, found[name], inside); err != nil {
			return err
		}
	}
	return nil
}

// mounted says how containers mount a volume: as a whole, in part, or both.
type mounted struct{ whole, part bool }

// addVolume adds a volume if it is an emptyDir whose files are on the node. Containers that mount the whole volume and
// containers that mount a part of it must see the same files.
func (c *checkpoint) addVolume(root, name string, m mounted, inside map[string]bool) error {
	path, err := kubelet.VolumeDir(c.pod.UID, name)
	if err != nil {
		return err
	}
	if inside[path] && m.part {
		return fmt.Errorf("pod %s: volume %s: %w: a container mounts a part of it from the node, and what others mount is "+
			"kept inside the sandbox: remove the annotations dev.gvisor.spec.mount.%s.* from the pod",
			c.pod, name, errkind.ErrVolume, name)
	}
	if inside[path] {
		return nil
	}
	dir, err := volume.Open(root, path)
	if errors.Is(err, fs.ErrNotExist) && !m.whole { // a volume of another kind
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: volume %s: %w", c.pod, name, err)
	}
	stream, err := capture.NewStream(c.cs.Stores.SpoolDir(), c.cs.Stores.Encrypted())
	if err != nil {
		return errors.Join(fmt.Errorf("pod %s: volume %s: %w", c.pod, name, err), dir.Close())
	}
	c.volumes = append(c.volumes, onNode{name: name, dir: dir, stream: stream})
	return nil
}

// warmVolumes reads the volumes before the pause, so that the pause is not spent on a slow disk or on volumes that are
// too large. It ignores other errors, because the volumes may change while it reads: the capture finds these.
func (c *checkpoint) warmVolumes(ctx context.Context) error {
	left := c.cs.VolumeLimit
	for _, v := range c.volumes {
		var sum counted
		if err := volume.Save(ctx, v.dir, &sum, left); errors.Is(err, volume.ErrLimit) {
			return fmt.Errorf("volume %s of pod %s: %w", v.name, c.pod, err)
		}
		left -= int64(sum)
	}
	c.volumeSize = c.cs.VolumeLimit - left
	return ctx.Err()
}

// counted is a volume.Sink that only counts bytes.
type counted int64

func (n *counted) Write(p []byte) (int, error) {
	*n += counted(len(p))
	return len(p), nil
}

func (*counted) Cut() {}

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
	left := c.cs.VolumeLimit
	for i := range c.volumes {
		v := &c.volumes[i]
		err := volume.Save(ctx, v.dir, v.stream, left)
		if err == nil {
			err = v.stream.Seal()
		}
		err = errors.Join(err, v.dir.Close()) // the kubelet may want to unmount it
		v.dir = nil
		if err != nil {
			return fmt.Errorf("capture volume %s of pod %s: %w", v.name, c.pod, err)
		}
		left -= v.stream.Size()
	}
	return nil
}

// writeVolumes writes the volumes into a snapshot.
func (c *checkpoint) writeVolumes(w *storage.Writer) error {
	buf := make([]byte, snapshots.ChunkSize)
	for _, v := range c.volumes {
		f := w.File(volume.Part(v.name))
		for run := range v.stream.Chunks(snapshots.ChunkSize) {
			err := v.stream.Read(buf[:run.Len], run.Off)
			if err == nil {
				err = f.Copy(buf[:run.Len])
			}
			if err != nil {
				return fmt.Errorf("store volume %s of pod %s: %w", v.name, c.pod, err)
			}
		}
	}
	return nil
}

// volumeBytes returns how many bytes of volumes were captured.
func (c *checkpoint) volumeBytes() (n int64) {
	for _, v := range c.volumes {
		n += v.stream.Size()
	}
	return n
}

// closeVolumes frees what was captured of volumes.
func (c *checkpoint) closeVolumes() {
	for _, v := range c.volumes {
		err := v.stream.Close()
		if v.dir != nil {
			err = errors.Join(err, v.dir.Close())
		}
		if err != nil {
			c.log.Warn("volume not closed", "volume", v.name, "error", err)
		}
	}
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
	"diapause.dev/volume"
)

// onNode is an emptyDir volume that lies on the node, and not inside the sandbox, on its way into a snapshot.
type onNode struct {
	name   string
	dir    string          // path of its directory, for the agent
	stream *capture.Stream // nil until it has been captured
}

// findVolumes finds out which emptyDir volumes the containers have mounted from the node.
func (c *checkpoint) findVolumes() error {
	mounts, err := cri.Mounts(c.meta.Pod)
	if err != nil {
		return err
	}
	whole, part := make(map[string]string), make(map[string]string) // paths by name
	for path := range mounts {
		if name, all, ok := volume.Mounted(c.pod.UID, path); ok && all {
			whole[name] = path
		} else if ok {
			part[name] = path
		}
	}
	if len(whole)+len(part) == 0 {
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
	for name, path := range whole {
		if !inside[path] {
			c.addVolume(root, path, name)
		}
	}
	for name := range part {
		if err := c.addPart(root, name, inside, whole[name] != ""); err != nil {
			return err
		}
	}
	slices.SortFunc(c.volumes, func(a, b onNode) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// addPart adds a volume that is mounted in part if it is an emptyDir. Whoever mounts the whole of it must
// have the same files.
func (c *checkpoint) addPart(root, name string, inside map[string]bool, known bool) error {
	dir, err := volume.Dir(c.pod.UID, name)
	if err != nil {
		return err
	}
	if inside[dir] {
		return fmt.Errorf("pod %s: volume %s: %w: a container mounts a part of it from the node, and what others mount is kept inside the sandbox: take the annotations dev.gvisor.spec.mount.%s.* off the pod",
			c.pod, name, ErrVolume, name)
	}
	there, err := volume.Exists(root, dir)
	if err == nil && there && !known {
		c.addVolume(root, dir, name)
	}
	return err
}

func (c *checkpoint) addVolume(root, dir, name string) {
	c.volumes = append(c.volumes, onNode{name: name, dir: filepath.Join(root, dir)})
}

// warmVolumes reads the volumes before the pause, so that none of it is spent on waiting for a disk, or on
// volumes that are too large. They may change meanwhile: what else is wrong shows then.
func (c *checkpoint) warmVolumes(ctx context.Context) error {
	left := c.cfg.VolumeLimit
	for _, v := range c.volumes {
		var sum counted
		if err := volume.Save(ctx, v.dir, &sum, left); errors.Is(err, volume.ErrLimit) {
			return fmt.Errorf("volume %s of pod %s: %w", v.name, c.pod, err)
		}
		left -= int64(sum)
	}
	return ctx.Err()
}

// counted is a volume.Sink that keeps the number of bytes.
type counted int64

func (n *counted) Write(p []byte) (int, error) {
	*n += counted(len(p))
	return len(p), nil
}

func (*counted) Cut() {}

// captureVolumes copies the volumes while the sandbox is paused.
func (c *checkpoint) captureVolumes(ctx context.Context) error {
	left := c.cfg.VolumeLimit
	for i := range c.volumes {
		v := &c.volumes[i]
		var err error
		if v.stream, err = capture.NewStream(c.spoolDir(), c.cfg.Keys != ""); err == nil {
			err = volume.Save(ctx, v.dir, v.stream, left)
		}
		if err == nil {
			err = v.stream.Seal()
		}
		if err != nil {
			return fmt.Errorf("capture volume %s of pod %s: %w", v.name, c.pod, err)
		}
		left -= v.stream.Size()
	}
	return nil
}

// writeVolumes writes the volumes into a snapshot.
func (c *checkpoint) writeVolumes(w *storage.Writer) error {
	buf := make([]byte, ChunkSize)
	for _, v := range c.volumes {
		f := w.File(volume.Part(v.name))
		for run := range v.stream.Chunks(ChunkSize) {
			v.stream.Read(buf[:run.Len], run.Off)
			if err := f.Copy(buf[:run.Len]); err != nil {
				return err
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

// closeVolumes gives back what was captured of volumes.
func (c *checkpoint) closeVolumes() {
	for _, v := range c.volumes {
		if v.stream == nil {
			continue
		}
		if err := v.stream.Close(); err != nil {
			c.log.Warn("volume not closed", "error", err)
		}
	}
}

// Package volumes captures what a snapshot holds of a pod's volumes that lie on the node. Of emptyDir volumes that is
// everything. Of those that the kubelet writes (ConfigMap, Secret, projected, downward API) it is the files that the
// pod holds: the kubelet gives them other paths in each pod, and when it writes the volume again.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/hostfile"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// Config says how volumes are captured.
type Config struct {
	Spool     string // the directory for what is captured
	Encrypted bool   // it is encrypted there
	Limit     int64  // limit for all volumes in one snapshot together, in bytes
	Logger    *slog.Logger
}

// Volumes are the volumes of a pod that is checkpointed. Close frees them. Nil has none: nothing was looked for.
type Volumes struct {
	Config
	pod     *cri.Pod
	all     []captured
	written *hostfile.Payloads // nil: not looked for
	size    int64
}

// captured is what a snapshot holds of one volume, while it is captured and stored.
type captured struct {
	name   string
	part   string          // the part of the snapshot that holds it
	dir    *os.File        // of an emptyDir volume; nil once it has been captured
	stream *capture.Stream // empty until it has been captured
}

// Find finds out which volumes the containers of a recorded pod have mounted from the node.
func Find(o Config, pod *cri.Pod, rec snapshot.Pod, scope snapshot.Scope) (*Volumes, error) {
	v := &Volumes{Config: o, pod: pod}
	mounts, err := cri.Mounts(rec)
	if err != nil {
		return v, err
	}
	if found := v.emptyDirs(mounts); len(found) > 0 {
		err = v.addEmptyDirs(found)
	}
	if err == nil && scope == snapshot.WholePod {
		err = v.findWritten(mounts)
	}
	return v, err
}

// mounted says how containers mount a volume: as a whole, in part, or both.
type mounted struct{ whole, part bool }

// emptyDirs returns which emptyDir volumes are mounted. What is mounted in part alone may be a volume of another kind.
func (v *Volumes) emptyDirs(mounts map[string][]cri.Mount) map[string]mounted {
	found := make(map[string]mounted)
	for path := range mounts {
		if name, whole, ok := kubelet.Mounted(v.pod.UID, path); ok {
			m := found[name]
			found[name] = mounted{whole: m.whole || whole, part: m.part || !whole}
		} else if kubelet.Elsewhere(v.pod.UID, path) {
			v.Logger.Warn("a volume is not part of the snapshot: it is looked for in "+kubelet.Root, "path", path)
		}
	}
	return found
}

func (v *Volumes) addEmptyDirs(found map[string]mounted) error {
	root, err := runsc.NodeRoot(v.pod.SandboxPID)
	if err != nil {
		return err
	}
	inside, err := runsc.Inside(v.pod.SandboxPID, v.pod.ID)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := v.addEmptyDir(root, name, found[name], inside); err != nil {
			return err
		}
	}
	return nil
}

// addEmptyDir adds a volume if it is an emptyDir whose files are on the node. Containers that mount the whole volume
// and containers that mount a part of it must see the same files.
func (v *Volumes) addEmptyDir(root, name string, m mounted, inside map[string]bool) error {
	path, err := kubelet.VolumeDir(v.pod.UID, name)
	if err != nil {
		return err
	}
	if inside[path] && m.part {
		return fmt.Errorf("pod %s: volume %s: %w: a container mounts a part of it from the node, and what others mount is "+
			"kept inside the sandbox: remove the annotations dev.gvisor.spec.mount.%s.* from the pod",
			v.pod, name, errkind.ErrVolume, name)
	}
	if inside[path] {
		return nil
	}
	dir, err := volume.Open(root, path)
	if errors.Is(err, fs.ErrNotExist) && !m.whole { // a volume of another kind
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: volume %s: %w", v.pod, name, err)
	}
	one := captured{name: name, part: volume.Part(name), dir: dir}
	if one.stream, err = v.stream(name); err != nil {
		return errors.Join(err, dir.Close())
	}
	v.all = append(v.all, one)
	return nil
}

func (v *Volumes) stream(name string) (*capture.Stream, error) {
	s, err := capture.NewStream(v.Spool, v.Encrypted)
	if err != nil {
		return nil, fmt.Errorf("pod %s: volume %s: %w", v.pod, name, err)
	}
	return s, nil
}

// findWritten finds the volumes that the kubelet writes.
func (v *Volumes) findWritten(mounts map[string][]cri.Mount) error {
	var all []hostfile.Mount
	for host, places := range mounts {
		if _, ok := kubelet.Written(v.pod.UID, host); ok {
			all = append(all, hostfile.Mount{Host: host, Container: places[0].Container, Path: places[0].Path})
		}
	}
	if len(all) == 0 {
		return nil
	}
	shim, children, err := runsc.Processes(v.pod.SandboxPID)
	if err != nil {
		return err
	}
	v.written, err = hostfile.FindPayloads(hostfile.Sandbox{Shim: shim, Processes: children}, all)
	return err
}

// Any reports whether there is anything to capture.
func (v *Volumes) Any() bool { return v != nil && (len(v.all) > 0 || v.written != nil) }

// Warm reads the emptyDir volumes before the pause, so that the pause is not spent on a slow disk or on volumes that
// are too large. It ignores other errors, because the volumes may change while it reads: Capture finds these.
func (v *Volumes) Warm(ctx context.Context) error {
	left := v.Limit
	for _, one := range v.all {
		var sum counted
		if err := volume.Save(ctx, one.dir, &sum, left); errors.Is(err, volume.ErrLimit) {
			return fmt.Errorf("volume %s of pod %s: %w", one.name, v.pod, err)
		}
		left -= int64(sum)
	}
	v.size = v.Limit - left
	return ctx.Err()
}

// Size returns how many bytes the volumes had before the pause.
func (v *Volumes) Size() int64 {
	if v == nil {
		return 0
	}
	return v.size
}

// counted is a volume.Sink that only counts bytes.
type counted int64

func (n *counted) Write(p []byte) (int, error) {
	*n += counted(len(p))
	return len(p), nil
}

func (*counted) Cut() {}

// Capture copies the volumes while the sandbox is paused.
func (v *Volumes) Capture(ctx context.Context) error {
	left := v.Limit
	for i := range v.all {
		one := &v.all[i]
		err := one.capture(func() error { return volume.Save(ctx, one.dir, one.stream, left) })
		err = errors.Join(err, one.dir.Close()) // the kubelet may want to unmount it
		one.dir = nil
		if err != nil {
			return fmt.Errorf("capture volume %s of pod %s: %w", one.name, v.pod, err)
		}
		left -= one.stream.Size()
	}
	if v.written == nil {
		return nil
	}
	return v.captureWritten(ctx, left)
}

func (c *captured) capture(save func() error) error {
	if err := save(); err != nil {
		return err
	}
	return c.stream.Seal()
}

// captureWritten copies what the sandbox holds of volumes that the kubelet writes.
func (v *Volumes) captureWritten(ctx context.Context, left int64) error {
	held, err := v.written.Held()
	if err != nil {
		return fmt.Errorf("pod %s: %w", v.pod, err)
	}
	for _, p := range held {
		defer p.Close()
	}
	for _, p := range held {
		one := captured{name: p.Volume, part: volume.PayloadPart(p.Payload)}
		if one.stream, err = v.stream(p.Volume); err != nil {
			return err
		}
		v.all = append(v.all, one)
		err := one.capture(func() error { return volume.SavePieces(ctx, p.Pieces, one.stream, left) })
		if err != nil {
			return fmt.Errorf("capture volume %s of pod %s: %w", p.Volume, v.pod, err)
		}
		left -= one.stream.Size()
	}
	return nil
}

// Write writes the volumes into a snapshot.
func (v *Volumes) Write(w *storage.Writer) error {
	if v == nil {
		return nil
	}
	buf := make([]byte, snapshots.ChunkSize)
	for _, one := range v.all {
		f := w.File(one.part)
		for run := range one.stream.Chunks(snapshots.ChunkSize) {
			err := one.stream.Read(buf[:run.Len], run.Off)
			if err == nil {
				err = f.Copy(buf[:run.Len])
			}
			if err != nil {
				return fmt.Errorf("store volume %s of pod %s: %w", one.name, v.pod, err)
			}
		}
	}
	return nil
}

// Bytes returns how many bytes were captured.
func (v *Volumes) Bytes() (n int64) {
	if v == nil {
		return 0
	}
	for _, one := range v.all {
		n += one.stream.Size()
	}
	return n
}

// Close frees what was captured.
func (v *Volumes) Close() {
	if v == nil {
		return
	}
	if v.written != nil {
		v.written.Close()
	}
	for _, one := range v.all {
		err := one.stream.Close()
		if one.dir != nil {
			err = errors.Join(err, one.dir.Close())
		}
		if err != nil {
			v.Logger.Warn("volume not closed", "volume", one.name, "error", err)
		}
	}
}

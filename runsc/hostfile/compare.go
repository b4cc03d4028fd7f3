package hostfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
)

// ErrChanged is the kind of error of a volume that has gone on without the snapshot.
var ErrChanged = errors.New("has changed since the snapshot")

// Compare returns an error of kind ErrChanged unless the files of the volumes are as they were noted. The volumes'
// paths must be those that they have now. Root is a path to the root of the node's file system. A file system that does
// not answer before ctx ends is an error, too.
func Compare(ctx context.Context, root string, volumes []snapshot.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	if err := snapshot.CheckVolumes(volumes); err != nil {
		return err
	}
	for i := range volumes {
		done := make(chan error, 1)
		go func() { done <- compare(root, &volumes[i]) }()
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("volume %s: its file system does not answer: %w", &volumes[i], context.Cause(ctx))
		}
	}
	return nil
}

// compare compares one volume. A claim's volume may have another name by now: it is looked for in the same directory of
// the kubelet's.
func compare(root string, v *snapshot.Volume) error {
	err := compareAt(root, v.Host, v)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, other := range namesakes(root, v.Host) {
		if compareAt(root, other, v) == nil {
			return nil
		}
	}
	return err
}

// compareAt compares a volume that is at a path of the node.
func compareAt(root, host string, v *snapshot.Volume) error {
	if len(v.Files) == 0 {
		return nil
	}
	dir, err := openIn(root, host)
	if err != nil && !absent(err) {
		return unknown(v, err)
	}
	if err != nil {
		return fmt.Errorf("volume %s %w: %s is not on this node: %w", v, ErrChanged, short(host), err)
	}
	defer dir.Close()
	for _, was := range v.Files {
		f, err := openBelow(dir, was.Path)
		if err != nil {
			return gone(v, was, err)
		}
		size, modified, err := stat(int(f.Fd()))
		f.Close()
		if err != nil {
			return gone(v, was, err)
		}
		if size != was.Size || modified != was.Modified {
			now := snapshot.VolumeFile{Size: size, Modified: modified}
			return fmt.Errorf("volume %s %w: file %s had %d bytes, modified at %s, and has %d, modified at %s", v, ErrChanged,
				short(was.Path), was.Size, exact(was), size, exact(now))
		}
	}
	return nil
}

// absent reports whether an error says that there is no such file any more.
func absent(err error) bool {
	for _, kind := range []error{
		unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, errNotRegular,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// unknown says that a volume cannot be compared.
func unknown(v *snapshot.Volume, err error) error {
	return fmt.Errorf("volume %s cannot be compared with the snapshot: %w", v, err)
}

// gone says that a file is missing, or cannot be looked at.
func gone(v *snapshot.Volume, was snapshot.VolumeFile, err error) error {
	if !absent(err) {
		return unknown(v, err)
	}
	return fmt.Errorf("volume %s %w: file %s had %d bytes, modified at %s, and is missing: %v", v, ErrChanged,
		short(was.Path), was.Size, exact(was), err)
}

func exact(f snapshot.VolumeFile) string { return f.Time().Format(time.RFC3339Nano) }

// short keeps the end of a path, which says most.
func short(name string) string {
	const most = 200
	if len(name) > most {
		return "…" + strings.ToValidUTF8(name[len(name)-most:], "")
	}
	return name
}

// maxNamesakes bounds in how many volumes of a pod files are looked for.
const maxNamesakes = 64

// namesakes returns the paths of a pod's other volumes of the same kind.
func namesakes(root, host string) (all []string) {
	before, in, ok := strings.Cut(host, "/volumes/")
	kind, in, named := strings.Cut(in, "/")
	if !ok || !named {
		return nil
	}
	_, in, _ = strings.Cut(in, "/")
	dir := path.Join(before, "volumes", kind)
	d, err := openIn(root, dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", d.Fd())) // if there are none, the volume is missing
	for _, n := range names[:min(len(names), maxNamesakes)] {
		all = append(all, path.Join(dir, n.Name(), in))
	}
	return all
}

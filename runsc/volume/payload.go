package volume

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/kubelet"
)

// SavePieces writes a tree to a stream, of which only these pieces are known: descriptors, opened with O_PATH, by their
// paths in the tree, "." for the tree's own directory. A piece may have been removed. Other kinds than regular files
// and directories are left out.
func SavePieces(ctx context.Context, pieces map[string]int, to Sink, limit int64) error {
	s := newSaver(ctx, to, limit)
	in := map[string]bool{}
	if len(pieces) == 0 {
		return errors.New("there is nothing to save")
	}
	for _, name := range slices.SortedFunc(maps.Keys(pieces), inOrder) {
		if err := checkName(name); err != nil && name != "." {
			return fmt.Errorf("%.80q: %w", name, err)
		}
		if err := s.piece(pieces[name], name, in); err != nil {
			return err
		}
	}
	return s.tw.Close()
}

// inOrder compares paths: a directory comes before what is in it, and that before what follows the directory.
func inOrder(a, b string) int { return slices.Compare(components(a), components(b)) }

func components(name string) []string {
	if name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// piece writes a piece, and those directories above it that are not in the stream yet.
func (s *saver) piece(fd int, name string, in map[string]bool) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %.80q: %w", name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s.above(name, in, &st)
	case unix.S_IFREG:
		if err := s.above(path.Dir(name), in, &unix.Stat_t{Mode: 0o755, Mtim: st.Mtim}); err != nil {
			return err
		}
		st.Nlink = 1 // other names of it are in no stream
		return s.leaf(fd, name, &st)
	}
	return nil
}

// above writes a directory and those above it that are not in the stream yet.
func (s *saver) above(dir string, in map[string]bool, st *unix.Stat_t) error {
	if in[dir] {
		return nil
	}
	in[dir] = true
	name := dir + "/"
	if dir != "." {
		if err := s.above(path.Dir(dir), in, &unix.Stat_t{Mode: 0o755, Mtim: st.Mtim}); err != nil {
			return err
		}
	}
	return s.write(header(name, st, tar.TypeDir))
}

// unfinished begins the name of a directory that is being made.
const unfinished = "..diapause-"

// Add makes the directory name of a volume, with the tree of a stream in it. A directory that has the name already is
// replaced. There is nothing or all of it.
func Add(ctx context.Context, dir, name string, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	temp := unfinished + name
	if err := root.RemoveAll(temp); err != nil {
		return err
	}
	if err := root.Mkdir(temp, 0o700); err != nil {
		return err
	}
	d, err := root.Open(temp)
	if err == nil {
		err = errors.Join(fill(ctx, d, r), d.Close())
	}
	if err == nil {
		err = root.RemoveAll(name)
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(temp))
	}
	return nil
}

// current is the link by which the kubelet names its own directory in a volume.
const current = "..data"

// Receive calls put with the stream of a volume, or of a directory in one that the kubelet has written
// (kubelet.Payload). Put is to put it in place below dir.
type Receive func(ctx context.Context, dir, name string, put func(context.Context, io.Reader) error) error

// AddPayloads puts directories into the volumes of a pod that the kubelet writes. GVisor looks again for each file that
// was held, by its path. In such a volume that leads through a directory whose name is another one in each pod, and
// after the kubelet has written the volume again. So the directory of the snapshot is put beside the kubelet's own. The
// kubelet leaves it alone, and removes it with the volume.
//
// Directories that are there stay as they are, except if anew is set: then the kubelet's own alone stays. After an
// error some of them may be in place.
func AddPayloads(ctx context.Context, pod string, names []string, anew bool, receive Receive) error {
	for _, name := range names {
		p, err := kubelet.ParsePayload(name)
		if err == nil {
			err = addPayload(ctx, pod, p, anew, receive)
		}
		if err != nil {
			return fmt.Errorf("directory %.200q, of which the snapshot's processes hold files: %w", name, err)
		}
	}
	return nil
}

func addPayload(ctx context.Context, pod string, p kubelet.Payload, anew bool, receive Receive) error {
	dir, err := kubelet.WrittenDir(pod, p.Volume)
	if err != nil {
		return err
	}
	own, err := os.Readlink(filepath.Join(dir, current))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if own == p.Dir {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, p.Dir)); err == nil && !anew {
		return nil
	}
	return receive(ctx, dir, p.String(), func(ctx context.Context, r io.Reader) error { return Add(ctx, dir, p.Dir, r) })
}

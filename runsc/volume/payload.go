package volume

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// SavePieces writes a tree to a stream, of which only these pieces are known: descriptors, opened with O_PATH, by their
// paths in the tree, "." for the tree's own directory. A piece may have been removed. Other kinds than regular files and
// directories are left out.
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

package volume

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Sink receives a stream.
type Sink interface {
	io.Writer
	// Cut marks a place where the stream is best cut for storage. What comes next may well be in another stream too.
	Cut()
}

// copySize is how many bytes of a file are copied at a time.
const copySize = 256 << 10

// apart is the size, in bytes, from which a file is stored apart from its neighbours.
const apart = 32 << 10

// Save writes the tree of a volume to a stream of at most limit bytes. Nothing should change in the tree meanwhile.
// If something does, Save still reads nothing outside of the volume.
func Save(ctx context.Context, dir *os.File, to Sink, limit int64) error {
	fd := int(dir.Fd())
	s := newSaver(ctx, to, limit)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := s.directory(fd, "", &st, 0); err != nil {
		return err
	}
	return s.tw.Close()
}

// bounded is a sink that accepts only a limited number of bytes.
type bounded struct {
	Sink
	left, limit int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrLimit, b.limit)
	}
	return b.Sink.Write(p)
}

// inode identifies a file.
type inode struct{ dev, ino uint64 }

// saver writes one stream. Descriptors passed to its methods are O_PATH: to open one has no effect on the file,
// whatever kind of file it is.
type saver struct {
	ctx     context.Context
	tw      *tar.Writer
	sink    Sink
	entries int
	linked  map[inode]string // names of files that have several hard links
	held    int              // bytes of names in memory
	buf     []byte
}

func newSaver(ctx context.Context, to Sink, limit int64) *saver {
	s := &saver{
		ctx: ctx, sink: &bounded{Sink: to, left: limit, limit: limit}, linked: make(map[inode]string),
		buf: make([]byte, copySize),
	}
	s.tw = tar.NewWriter(s.sink)
	return s
}

// directory writes a directory and its content. Its name ends in a slash; the name of the volume's own is empty.
func (s *saver) directory(fd int, name string, st *unix.Stat_t, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.80q: %w: directories lie more than %d deep", name, ErrLimit, maxDepth)
	}
	f, err := reopen(fd, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %.80q: %w", name, err)
	}
	defer f.Close()
	h := header(name, st, tar.TypeDir)
	if name == "" {
		h.Name = "./"
	}
	if err := attributes(int(f.Fd()), h); err != nil {
		return fmt.Errorf("%.80q: %w", name, err)
	}
	if err := s.write(h); err != nil {
		return err
	}
	names, err := s.names(f)
	if err != nil {
		return fmt.Errorf("read directory %.80q: %w", name, err)
	}
	for _, n := range names {
		if err := s.entry(int(f.Fd()), name, n, depth); err != nil {
			return err
		}
		s.held -= len(n)
	}
	return nil
}

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 4096

// names returns the names in a directory, sorted, so that equal trees make equal streams.
func (s *saver) names(f *os.File) (names []string, err error) {
	for {
		more, err := f.Readdirnames(namesAtOnce)
		names = append(names, more...)
		for _, n := range more {
			if err := s.hold(n); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if s.entries+len(names) > MaxEntries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrLimit, MaxEntries)
		}
	}
}

// hold counts a name that stays in memory.
func (s *saver) hold(name string) error {
	if s.held += len(name); s.held > maxHeld {
		return fmt.Errorf("%w: names of more than %d bytes", ErrLimit, maxHeld)
	}
	return nil
}

// entry writes the entry base of an open directory. If it is gone by now, that is no error.
func (s *saver) entry(parent int, dir, base string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	name := dir + base
	if len(name) > maxName {
		return fmt.Errorf("%.80q...: %w: a name of more than %d bytes", name, ErrLimit, maxName)
	}
	fd, err := unix.Openat(parent, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %.80q: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %.80q: %w", name, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return s.directory(fd, name+"/", &st, depth+1)
	}
	if err := s.leaf(fd, name, &st); err != nil {
		return fmt.Errorf("%.80q: %w", name, err)
	}
	return nil
}

// leaf writes anything except a directory.
func (s *saver) leaf(fd int, name string, st *unix.Stat_t) error {
	var h *tar.Header
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		h = header(name, st, tar.TypeReg)
	case unix.S_IFIFO:
		h = header(name, st, tar.TypeFifo)
	case unix.S_IFLNK:
		h = header(name, st, tar.TypeSymlink)
		n, err := unix.Readlinkat(fd, "", s.buf)
		if err != nil {
			return err
		}
		h.Linkname = string(s.buf[:n])
	default:
		return nil
	}
	if st.Nlink > 1 {
		i := inode{uint64(st.Dev), st.Ino}
		if first, ok := s.linked[i]; ok {
			return s.write(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Name: name, Linkname: first})
		}
		if err := s.hold(name); err != nil {
			return err
		}
		s.linked[i] = name
	}
	if h.Typeflag == tar.TypeReg {
		return s.file(fd, h, st)
	}
	return s.write(h)
}

// file writes a file with its data.
func (s *saver) file(fd int, h *tar.Header, st *unix.Stat_t) error {
	f, err := reopen(fd, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := attributes(int(f.Fd()), h); err != nil {
		return err
	}
	data, err := dataOf(int(f.Fd()), st)
	if err != nil {
		return err
	}
	h.Size = data.bytes()
	if !data.solid(st.Size) {
		record(h, holesRecord, data.encode(st.Size))
	}
	if err := s.write(h); err != nil {
		return err
	}
	if h.Size >= apart {
		s.sink.Cut()
		defer s.sink.Cut()
	}
	for _, e := range data {
		if err := s.copy(f, e); err != nil {
			return err
		}
	}
	return nil
}

// copy copies a piece of a file.
func (s *saver) copy(f *os.File, e extent) error {
	for e.n > 0 {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		n, err := f.ReadAt(s.buf[:min(e.n, copySize)], e.off)
		if n == 0 && errors.Is(err, io.EOF) {
			return errors.New("it became shorter while it was copied")
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := s.tw.Write(s.buf[:n]); err != nil {
			return err
		}
		e.off, e.n = e.off+int64(n), e.n-int64(n)
	}
	return nil
}

func (s *saver) write(h *tar.Header) error {
	if err := tooMany(&s.entries, MaxEntries, "entries"); err != nil {
		return err
	}
	return s.tw.WriteHeader(h)
}

func header(name string, st *unix.Stat_t, kind byte) *tar.Header {
	return &tar.Header{
		Format: tar.FormatPAX, Typeflag: kind, Name: name,
		Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()),
	}
}

// reopen opens the file behind an O_PATH descriptor for reading.
func reopen(fd, flags int) (*os.File, error) {
	p := fmt.Sprintf("/proc/self/fd/%d", fd)
	n, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), p), nil
}

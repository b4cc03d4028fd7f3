package volume

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Fill puts the tree of a stream into the directory of a volume. The directory must be empty (ErrOccupied), or have
// been filled before. After an error it is empty again; if it could not be emptied, the error says so.
func Fill(ctx context.Context, dir string, r io.Reader) error {
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := prepare(d)
	if err != nil {
		return err
	}
	if err := fill(ctx, d, r); err != nil {
		if left := m.empty(d); left != nil {
			return fmt.Errorf("%w; the volume could not be emptied again: %w", err, left)
		}
		return err
	}
	return nil
}

// prepare marks an empty directory. It first empties one that was filled before: the pod starts from the snapshot
// again, and what it has written since then belongs to a life that has ended.
func prepare(d *os.File) (mark, error) {
	m, again, err := marked(int(d.Fd()))
	if err == nil && again {
		err = m.empty(d)
	}
	if err != nil {
		return mark{}, err
	}
	if names, err := d.Readdirnames(1); !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("%w: there is %.80q", ErrOccupied, names[0])
		}
		return mark{}, err
	}
	if m, err = plain(d); err != nil {
		return mark{}, err
	}
	return m, m.put(int(d.Fd()))
}

func fill(ctx context.Context, d *os.File, r io.Reader) error {
	whole := &ending{r: r}
	f := &filler{ctx: ctx, root: int(d.Fd()), tr: tar.NewReader(whole), buf: make([]byte, copySize)}
	defer f.close()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := f.tr.Next()
		if errors.Is(err, io.EOF) {
			return f.end(whole)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("read: %w", err)
		}
		if err := tooMany(&f.entries, MaxEntries, "entries"); err != nil {
			return err
		}
		if err := f.entry(h); err != nil {
			return fmt.Errorf("%.80q: %w", h.Name, err)
		}
	}
}

// trailer is the number of zero bytes that end an archive. Package tar also accepts an archive without them.
const trailer = 1024

// ending is a reader that counts the trailing zero bytes of what has been read.
type ending struct {
	r     io.Reader
	zeros int
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	kept := len(bytes.TrimRight(p[:n], "\x00"))
	if kept > 0 {
		e.zeros = 0
	}
	e.zeros = min(e.zeros+n-kept, trailer)
	return n, err
}

// filler puts one stream in place. It keeps open the directories that the stream is in, from the volume's own to the
// innermost. Its next step concerns one name in the innermost directory, or leaves that directory.
type filler struct {
	ctx     context.Context
	tr      *tar.Reader
	root    int
	in      []directory // the volume's own first
	entries int
	buf     []byte
}

// directory is a directory that is being filled. It gets the metadata of its header once it is full.
type directory struct {
	fd   int
	name string // with a slash at its end; empty: the volume's own
	h    *tar.Header
}

// entry puts one entry in place.
func (f *filler) entry(h *tar.Header) error {
	if len(f.in) == 0 {
		if h.Name != "./" || h.Typeflag != tar.TypeDir {
			return errors.New("the stream does not begin with the volume's directory")
		}
		fd, err := unix.FcntlInt(uintptr(f.root), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			f.in = append(f.in, directory{fd: fd, h: h})
		}
		return err
	}
	dir, base, err := split(h)
	if err != nil {
		return err
	}
	if err := f.leave(dir); err != nil {
		return err
	}
	parent := f.in[len(f.in)-1].fd
	if h.Typeflag == tar.TypeDir {
		return f.enter(parent, base, h)
	}
	return f.put(parent, base, h)
}

// split checks the name of an entry, and returns its directory and its name in there.
func split(h *tar.Header) (dir, base string, err error) {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if err := checkName(name); err != nil {
		return "", "", err
	}
	dir, base = path.Split(name)
	return dir, base, nil
}

// checkName refuses names that lead anywhere but down from the volume's directory.
func checkName(name string) error {
	if name == "." || len(name) > maxName || !filepath.IsLocal(name) || path.Clean(name) != name ||
		strings.Contains(name, "\x00") {
		return errors.New("not a valid name in a volume")
	}
	return nil
}

// leave finishes directories until dir is the innermost one.
func (f *filler) leave(dir string) error {
	for len(f.in) > 0 && f.in[len(f.in)-1].name != dir {
		if err := f.pop(); err != nil {
			return err
		}
	}
	if len(f.in) == 0 {
		return errors.New("it comes before its directory, or after its end")
	}
	return nil
}

// pop finishes the innermost directory.
func (f *filler) pop() error {
	last := len(f.in) - 1
	d := f.in[last]
	f.in = f.in[:last]
	defer unix.Close(d.fd)
	if err := dress(d.fd, d.h); err != nil {
		return fmt.Errorf("directory %.80q: %w", d.name, err)
	}
	// By its descriptor: the volume's own directory has no name here.
	if err := unix.UtimesNanoAt(d.fd, ".", times(d.h), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("times of directory %.80q: %w", d.name, err)
	}
	return nil
}

// enter makes a directory and enters it.
func (f *filler) enter(parent int, base string, h *tar.Header) error {
	if len(f.in) > maxDepth {
		return fmt.Errorf("%w: directories lie more than %d deep", ErrLimit, maxDepth)
	}
	if err := unix.Mkdirat(parent, base, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.in = append(f.in, directory{fd: fd, name: strings.TrimSuffix(h.Name, "/") + "/", h: h})
	return nil
}

// put puts anything except a directory into the open directory parent.
func (f *filler) put(parent int, base string, h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg:
		return f.file(parent, base, h)
	case tar.TypeLink:
		return f.link(parent, base, h.Linkname)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxTarget {
			return fmt.Errorf("a symbolic link to a name of %d bytes", len(h.Linkname))
		}
		if err := unix.Symlinkat(h.Linkname, parent, base); err != nil {
			return err
		}
	case tar.TypeFifo:
		if err := unix.Mkfifoat(parent, base, 0o600); err != nil {
			return err
		}
	default:
		return fmt.Errorf("entries of type %q are not supported", h.Typeflag)
	}
	if err := unix.Fchownat(parent, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeFifo { // a symbolic link has no mode of its own
		if err := unix.Fchmodat(parent, base, uint32(h.Mode&0o7777), 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(parent, base, times(h), unix.AT_SYMLINK_NOFOLLOW)
}

// file makes a file. It sets times last, because everything else changes them.
func (f *filler) file(parent int, base string, h *tar.Header) error {
	data, size, err := place(h)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), h.Name)
	for _, e := range data {
		if err == nil {
			err = f.copy(to, e)
		}
	}
	if err == nil {
		err = to.Truncate(size)
	}
	if err == nil {
		err = dress(fd, h)
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return unix.UtimesNanoAt(parent, base, times(h), unix.AT_SYMLINK_NOFOLLOW)
}

// place returns where in the file its data lies, and the file's size. It refuses package tar's own records of holes:
// tar would turn such holes into zeros, without a bound.
func place(h *tar.Header) (data extents, size int64, err error) {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return nil, 0, fmt.Errorf("records like %.80q are not supported", key)
		}
	}
	holes, ok := h.PAXRecords[holesRecord]
	if !ok {
		return extents{{0, h.Size}}, h.Size, nil
	}
	if data, size, err = parseExtents(holes); err != nil {
		return nil, 0, err
	}
	if n := data.bytes(); n != h.Size {
		return nil, 0, fmt.Errorf("it has %d bytes of data, and its record of holes says %d", h.Size, n)
	}
	return data, size, nil
}

// copy writes the next bytes of the stream to a piece of a file.
func (f *filler) copy(to *os.File, e extent) error {
	for e.n > 0 {
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		n, err := io.ReadFull(f.tr, f.buf[:min(e.n, copySize)])
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if _, err := to.WriteAt(f.buf[:n], e.off); err != nil {
			return err
		}
		e.off, e.n = e.off+int64(n), e.n-int64(n)
	}
	return nil
}

// link gives an entry that is in place already another name.
func (f *filler) link(parent int, base, target string) error {
	if err := checkName(target); err != nil {
		return fmt.Errorf("a link to %.80q: %w", target, err)
	}
	fd, err := unix.Openat2(f.root, target, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return fmt.Errorf("a link to %.80q: %w", target, err)
	}
	defer unix.Close(fd)
	if err := unix.Linkat(fd, "", parent, base, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("a link to %.80q: %w", target, err)
	}
	return nil
}

// end finishes all directories. Nothing may follow the archive.
func (f *filler) end(r *ending) error {
	if len(f.in) == 0 || r.zeros < trailer {
		return io.ErrUnexpectedEOF
	}
	for len(f.in) > 0 {
		if err := f.pop(); err != nil {
			return err
		}
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(r, 1)); err != nil || n > 0 {
		return errors.Join(errors.New("the stream does not end with its archive"), err)
	}
	return nil
}

// close closes what is still open after an error.
func (f *filler) close() {
	for _, d := range f.in {
		unix.Close(d.fd)
	}
}

// dress gives a file or directory the owner, mode and attributes of its header.
func dress(fd int, h *tar.Header) error {
	if err := setAttributes(fd, h); err != nil {
		return err
	}
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil { // clears setuid
		return err
	}
	return unix.Fchmod(fd, uint32(h.Mode&0o7777))
}

func times(h *tar.Header) []unix.Timespec {
	t := unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
	return []unix.Timespec{t, t}
}

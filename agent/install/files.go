package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// placeProgram makes dst an executable copy of src, and reports whether it was not one already.
func placeProgram(src, dst string) (changed bool, err error) {
	f, err := os.Open(src)
	if err != nil {
		return false, fmt.Errorf("install %s: %w", filepath.Base(dst), err)
	}
	defer f.Close()
	same, err := sameContent(f, dst, 0o755)
	if err != nil || same {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("install %s: %w", filepath.Base(dst), err)
	}
	return true, replace(dst, f, 0o755)
}

// placeFile makes dst a file with this content, and reports whether it was not one already.
func placeFile(dst string, content []byte) (changed bool, err error) {
	same, err := sameContent(bytes.NewReader(content), dst, 0o644)
	if err != nil || same {
		return false, err
	}
	return true, replace(dst, bytes.NewReader(content), 0o644)
}

// sameContent reports whether the file at path has mode perm and the content of r. A file that does not exist has
// another content.
func sameContent(r io.Reader, path string, perm os.FileMode) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("install: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("install: %w", err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm() != perm {
		return false, nil
	}
	same, err := equal(r, f)
	if err != nil {
		return false, fmt.Errorf("install: compare %s: %w", path, err)
	}
	return same, nil
}

// equal reports whether two readers give the same bytes.
func equal(a, b io.Reader) (bool, error) {
	const piece = 1 << 20
	bufA, bufB := make([]byte, piece), make([]byte, piece)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		endA, endB := ended(errA), ended(errB)
		switch {
		case errA != nil && !endA:
			return false, errA
		case errB != nil && !endB:
			return false, errB
		case endA || endB:
			return endA && endB, nil
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// replace makes path a new file with the content of r, by rename. A process that has the old file open, or runs it,
// keeps it. Nothing ever sees half a file.
func replace(path string, r io.Reader, perm os.FileMode) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-")
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("install %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// lock keeps other installations away from dir until the caller closes the lock. If need be it makes dir. It does not
// wait. The kubelet starts containers in an order in which there is one installation at a time. So a second one is a
// mistake, and its user should hear of it.
func lock(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	l := flock.New(dir, flock.SetFlag(os.O_RDONLY)) // a directory cannot be opened with O_CREATE
	locked, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("install: lock %s: %w", dir, err)
	}
	if !locked {
		return nil, fmt.Errorf("install: another installation works on %s: wait for it to end, and try again", dir)
	}
	return l, nil
}

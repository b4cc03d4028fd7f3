package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/kubelet"
)

// markName is the extended attribute that marks a volume. Only the node's root sees it.
const markName = "trusted.diapause.volume"

// mark is what is recorded about a volume that is filled.
type mark struct {
	Whole    bool // it has been filled, and the pod's processes may have written to it since
	Mode     uint32
	UID, GID int
}

// ErrOccupied is the kind of error for a volume that is not empty, and so cannot be filled.
var ErrOccupied = errors.New("not empty")

// put marks the directory open as fd. On a file system without such attributes it leaves no mark.
func (m mark) put(fd int) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = unix.Fsetxattr(fd, markName, b, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("mark: %w", err)
	}
	return nil
}

// marked returns the mark of the directory open as fd, if it has one.
func marked(fd int) (m mark, ok bool, err error) {
	b := make([]byte, 1024)
	n, err := unix.Fgetxattr(fd, markName, b)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return mark{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		return mark{}, false, fmt.Errorf("mark: %w", err)
	}
	return m, true, nil
}

// open opens the directory of a volume.
func open(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// Settle records that the pod's processes may write to its filled volumes from now on. Clean then no longer takes
// these for half filled, and leaves them alone.
func Settle(pod string, names []string) error {
	return each(pod, names, settle)
}

func settle(d *os.File) error {
	m, ok, err := marked(int(d.Fd()))
	if err != nil || !ok || m.Whole {
		return err
	}
	m.Whole = true
	return m.put(int(d.Fd()))
}

// Yield marks the directory of a volume as filled, so that Fill replaces what is in it.
func Yield(dir string) error {
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, ok, err := marked(int(d.Fd())); err != nil || ok {
		return err
	}
	m, err := plain(d)
	if err != nil {
		return err
	}
	m.Whole = true
	return m.put(int(d.Fd()))
}

// plain returns the mark of a directory that is to be filled.
func plain(d *os.File) (mark, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return mark{}, err
	}
	return mark{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}, nil
}

// Empty removes everything from volumes that were filled, and gives their directories back the metadata that they
// had.
func Empty(pod string, names []string) error {
	return each(pod, names, empty)
}

func empty(d *os.File) error {
	m, ok, err := marked(int(d.Fd()))
	if err != nil || !ok {
		return err
	}
	return m.empty(d)
}

// Clean empties those volumes of a pod whose filling was cut short. No process of the pod can have written to them.
func Clean(pod string) error {
	dir, ok := kubelet.VolumesDir(pod)
	if !ok {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("volumes of pod %s: %w", pod, err)
	}
	for _, e := range entries {
		if err := clean(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty the half-filled volume %s of pod %s: %w", e.Name(), pod, err)
		}
	}
	return nil
}

func clean(dir string) error {
	d, err := open(dir)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // not a volume
	}
	if err != nil {
		return err
	}
	defer d.Close()
	m, ok, err := marked(int(d.Fd()))
	if err != nil || !ok || m.Whole {
		return err
	}
	return m.empty(d)
}

// empty removes everything from a directory, gives it back its metadata, and removes the mark.
func (m mark) empty(d *os.File) error {
	fd := int(d.Fd())
	if m.Whole { // if this fails halfway, Clean will finish it
		m.Whole = false
		if err := m.put(fd); err != nil {
			return err
		}
	}
	if err := removeAll(d); err != nil {
		return err
	}
	err := errors.Join(unix.Fchown(fd, m.UID, m.GID), unix.Fchmod(fd, m.Mode))
	if err == nil {
		err = unix.Fremovexattr(fd, markName)
	}
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// removeAll removes what is in a directory.
func removeAll(d *os.File) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", d.Fd()))
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range names {
		if err := root.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// each calls f with the open directory of each volume that exists.
func each(pod string, names []string, f func(*os.File) error) error {
	var errs []error
	for _, name := range names {
		dir, err := kubelet.VolumeDir(pod, name)
		if err == nil {
			err = with(dir, f)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("volume %.80q of pod %.80q: %w", name, pod, err))
		}
	}
	return errors.Join(errs...)
}

func with(dir string, f func(*os.File) error) error {
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(d)
}

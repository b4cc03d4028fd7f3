package hostfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
)

// maxDescriptors bounds how many descriptors of one process are looked at: a sandbox can open as many as it likes.
const maxDescriptors = 1 << 16

// Mount is where a container mounts a file or directory of the node.
type Mount struct{ Host, Container, Path string }

// Files are the files of a sandbox's volumes that may change. Close frees them.
type Files struct {
	began   time.Time
	volumes []*volume
}

// volume is one volume of a sandbox.
type volume struct {
	snapshot.Volume
	dir      *os.File // opened with O_PATH
	local    bool     // its file system answers at once
	seen     bool     // a process of the sandbox has it
	writable bool     // one may write it
	files    []*file
	byPath   map[string]*file
}

// file is a file of a volume that a sandbox has open.
type file struct {
	snapshot.VolumeFile
	fd       int    // shared with the sandbox: its flags must stay as they are, so it is no os.File
	writable bool   // the sandbox may write it
	link     string // its path, as the kernel shows it
	mount    string // that of its mount
}

// Sandbox says where the processes of a sandbox are.
type Sandbox struct {
	Shim      string   // the directory in /proc of its shim
	Processes []string // those of its sentry and its gofers
	Began     time.Time
}

// finder is a search for the files of a sandbox.
type finder struct {
	Files
	sandbox Sandbox
	wanted  func(host string) bool
	mounts  map[string]place // by mount id
	held    int              // descriptors that it holds
	fixed   bool             // it looks for volumes that the sandbox cannot write, too
}

// place is a mount in the namespace of a process of the sandbox.
type place struct {
	volume *volume
	at     string // where that process sees it
}

// Find finds the files that a sandbox holds open in volumes that are wanted, according to their paths on the node. What
// cannot be found out it notes as unknown.
func Find(s Sandbox, mounts []Mount, wanted func(host string) bool) (*Files, error) {
	f := finder{Files: Files{began: s.Began}, sandbox: s, wanted: wanted, mounts: make(map[string]place)}
	node, err := mountsOf(s.Shim)
	if err == nil && len(mounts) > snapshot.MaxVolumes {
		err = fmt.Errorf("the containers have more than %d mounts", snapshot.MaxVolumes)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if err := f.addVolume(node, m); err != nil {
			f.Close()
			return nil, err
		}
	}
	for _, p := range s.Processes {
		f.addPlaces(p)
	}
	for _, p := range s.Processes {
		f.addFiles(p)
	}
	f.limit()
	f.keepWanted()
	return &f.Files, nil
}

// addVolume adds what a container mounts, unless another container mounts it, too.
func (f *finder) addVolume(node []mount, m Mount) error {
	host := filepath.Clean(m.Host)
	dir, err := openIn(f.sandbox.Shim+"/root", host)
	if errors.Is(err, unix.ENOENT) { // it was removed, and containers still see it
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s on the node: %w", host, err)
	}
	v := &volume{Volume: snapshot.Volume{Host: whole(node, host), Container: m.Container, Path: m.Path}}
	v.dir, v.byPath = dir, make(map[string]*file)
	if slices.ContainsFunc(f.volumes, func(other *volume) bool { return other.Host == v.Host }) {
		return dir.Close()
	}
	f.volumes = append(f.volumes, v)
	return nil
}

// addPlaces finds out under which mounts a process has the volumes.
func (f *finder) addPlaces(process string) {
	mounts, err := mountsOf(process)
	if err != nil {
		return // it has ended
	}
	var found []mount
	for _, m := range mounts {
		v := f.volumeAt(process, m)
		if v == nil { // a mount inside a volume belongs to that
			i := slices.IndexFunc(found, func(o mount) bool { return strings.HasPrefix(m.at, o.at+"/") })
			if i < 0 {
				continue
			}
			f.mounts[m.id] = f.mounts[found[i].id]
			continue
		}
		v.seen, v.local = true, local[m.kind]
		if m.readOnly && !f.fixed || pseudo[m.kind] {
			continue
		}
		v.writable = true
		if foreign(m.kind) {
			v.Unknown = "its file system is " + m.kind
			continue
		}
		f.mounts[m.id] = place{v, m.at}
		found = append([]mount{m}, found...) // the innermost first
	}
}

// foreign reports whether a program decides what a file system of this kind says of its files.
func foreign(kind string) bool {
	return strings.HasPrefix(kind, "fuse") || kind == "9p" || kind == "virtiofs"
}

// pseudo are file systems that keep no files.
var pseudo = map[string]bool{
	"bpf": true, "cgroup": true, "cgroup2": true, "debugfs": true, "devpts": true, "proc": true, "securityfs": true,
	"sysfs": true, "tracefs": true,
}

// local are file systems that answer without another program or machine, and have exact times.
var local = map[string]bool{
	"bcachefs": true, "btrfs": true, "ext2": true, "ext3": true, "ext4": true, "f2fs": true, "overlay": true,
	"tmpfs": true, "xfs": true, "zfs": true,
}

// volumeAt returns the volume that a process has at a mount, or nil.
func (f *finder) volumeAt(process string, m mount) *volume {
	if m.at == "/" { // the container's root file system
		return nil
	}
	at, err := openIn(process+"/root", m.at)
	if err != nil {
		return nil
	}
	defer at.Close()
	for _, v := range f.volumes {
		if same(int(at.Fd()), int(v.dir.Fd())) {
			return v
		}
	}
	return nil
}

// addFiles adds the files of the volumes that a process has open.
func (f *finder) addFiles(process string) {
	numbers, err := descriptors(process)
	if err != nil {
		return // it has ended
	}
	pid, err := strconv.Atoi(filepath.Base(process))
	if err != nil {
		return
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(pidfd)
	for _, n := range numbers {
		id, flags := describe(process, n)
		p, ok := f.mounts[id]
		if !ok || flags&unix.O_PATH != 0 {
			continue
		}
		link, err := os.Readlink(process + "/fd/" + n)
		if err != nil {
			continue
		}
		number, _ := strconv.Atoi(n)
		f.add(p.volume, &file{link: link, mount: p.at, writable: flags&unix.O_ACCMODE != unix.O_RDONLY}, pidfd, number)
	}
}

// descriptors returns the numbers of the descriptors of a process.
func descriptors(process string) ([]string, error) {
	d, err := os.Open(process + "/fd")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	numbers, err := d.Readdirnames(maxDescriptors)
	return numbers, err
}

// describe returns the mount and the flags of a descriptor, see proc_pid_fdinfo(5).
func describe(process, number string) (mount string, flags int) {
	info, _ := os.ReadFile(process + "/fdinfo/" + number)
	for line := range bytes.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		switch value = strings.TrimSpace(value); key {
		case "flags":
			n, _ := strconv.ParseInt(value, 8, 64)
			flags = int(n)
		case "mnt_id":
			mount = value
		}
	}
	return mount, flags
}

// goferRoot is where a gofer has the root of its container in its mount namespace (runsc/cmd/gofer.go). The kernel
// shows paths from the root of that namespace.
const goferRoot = "/root"

// within returns the part of a path below a mount.
func within(path, mount string) string {
	for _, at := range []string{goferRoot + mount, mount} {
		if path == at {
			return "."
		}
		if in, ok := strings.CutPrefix(path, at+"/"); ok {
			return in
		}
	}
	return ""
}

// maxHeld bounds how many descriptors a search holds.
const maxHeld = 2 * snapshot.MaxVolumeFiles

// tooMany says that not all files of a volume are noted.
var tooMany = fmt.Sprintf("more than %d files of volumes are open", snapshot.MaxVolumeFiles)

// add adds a file of a volume that a process has open.
func (f *finder) add(v *volume, one *file, process, number int) {
	one.Path = within(one.link, one.mount)
	if known := v.byPath[one.Path]; known != nil {
		known.writable = known.writable || one.writable
		return
	}
	if f.held >= maxHeld {
		v.Unknown = tooMany
		return
	}
	fd, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESRCH) { // closed meanwhile
		return
	}
	if err != nil {
		v.Unknown = "the agent cannot see its files: " + err.Error()
		return
	}
	one.fd = fd
	if !v.has(one) {
		unix.Close(one.fd)
		return
	}
	v.files, v.byPath[one.Path] = append(v.files, one), one
	f.held++
}

// has reports whether a file is a regular one that has its path in the volume.
func (v *volume) has(f *file) bool {
	if !v.holds(f) || f.stat() != nil {
		return false
	}
	if !utf8.ValidString(f.Path) {
		v.Unknown = notUTF8
		return false
	}
	return true
}

// notUTF8 says that a file cannot be noted.
const notUTF8 = "a file in it has a name that is not UTF-8"

// holds reports whether a file has its path in the volume. It may have another name by now, or none.
func (v *volume) holds(f *file) bool {
	there, err := openBelow(v.dir, f.Path)
	if err != nil {
		return false
	}
	defer there.Close()
	return same(int(there.Fd()), f.fd)
}

// errNotRegular is the kind of error of what is no regular file.
var errNotRegular = errors.New("it is not a regular file")

// stat reads the file's size and time.
func (f *file) stat() (err error) {
	f.Size, f.Modified, err = stat(f.fd)
	return err
}

func stat(fd int) (size, modified int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, 0, errNotRegular
	}
	return st.Size, st.Mtim.Nano(), nil
}

// same reports whether two descriptors are of one file.
func same(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// limit drops the files that are too many. Those that may be written stay, and then those that were modified last.
func (f *finder) limit() {
	left, paths := snapshot.MaxVolumeFiles, snapshot.MaxVolumePaths
	for _, v := range f.volumes {
		slices.SortFunc(v.files, func(a, b *file) int {
			if a.writable != b.writable {
				return map[bool]int{true: -1, false: 1}[a.writable]
			}
			return cmp.Compare(b.Modified, a.Modified)
		})
		kept := 0
		for kept < min(len(v.files), left) && paths >= len(v.files[kept].Path) {
			paths -= len(v.files[kept].Path)
			kept++
		}
		left -= kept
		for _, dropped := range v.files[kept:] {
			if dropped.counts(f.began) {
				v.Unknown = tooMany
			}
			unix.Close(dropped.fd)
		}
		v.files = v.files[:kept]
	}
}

// counts reports whether the sandbox, which began then, may have changed the file.
func (f *file) counts(began time.Time) bool { return f.writable || f.Modified >= began.UnixNano() }

// keepWanted drops the volumes that are not wanted, and those that the sandbox cannot write.
func (f *finder) keepWanted() {
	f.volumes = slices.DeleteFunc(f.volumes, func(v *volume) bool {
		if !v.seen {
			v.Unknown = "no process of the sandbox shows it"
		}
		if f.wanted(v.Host) && (v.writable || !v.seen) {
			return false
		}
		v.close()
		return true
	})
}

func (v *volume) close() {
	for _, f := range v.files {
		unix.Close(f.fd)
	}
	v.dir.Close()
}

// Close frees the files. It does not wait for a file system that does not answer.
func (f *Files) Close() {
	for _, v := range f.volumes {
		if v.local {
			v.close()
		} else {
			go v.close()
		}
	}
}

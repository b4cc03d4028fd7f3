package hostfile

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of proc_pid_mountinfo(5).
type mount struct {
	id       string
	device   string
	root     string // of the mount, in its file system
	at       string // where it is mounted, as the process sees it
	readOnly bool
	kind     string // of its file system
}

// mountsOf returns the mounts that a process sees, in the order in which they were mounted.
func mountsOf(process string) (all []mount, err error) {
	data, err := os.ReadFile(process + "/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mounts of a sandbox: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(kind) == 0 {
			continue
		}
		all = append(all, mount{
			id: f[0], device: f[2], root: unescape(f[3]), at: unescape(f[4]), kind: kind[0],
			readOnly: slices.Contains(strings.Split(f[5], ","), "ro"),
		})
	}
	return all, nil
}

// unescape undoes how the kernel writes blanks and backslashes in paths.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// subpaths is the kubelet's directory with the mounts of parts of volumes. It is empty until the containers are made.
const subpaths = "/volume-subpaths/"

// whole returns a path on the node by which a part of a volume can be found before the kubelet has mounted the part:
// below a mount of the pod's, or else of the node's. Any other path stays as it is.
func whole(node []mount, host string) string {
	pod, _, ok := strings.Cut(host, subpaths)
	i := slices.IndexFunc(node, func(m mount) bool { return m.at == host })
	if i < 0 || !ok {
		return host
	}
	found, best := host, -1
	for _, m := range node {
		in, ok := below(node[i].root, m.root)
		own := strings.HasPrefix(m.at, pod+"/volumes/")
		if !ok || m.device != node[i].device || strings.Contains(m.at, "/pods/") && !own {
			continue
		}
		rank := len(m.root)
		if own {
			rank += unix.PathMax
		}
		if rank > best {
			found, best = path.Join(m.at, in), rank
		}
	}
	return found
}

// below returns the part of a path below a directory.
func below(name, dir string) (in string, ok bool) {
	if name == dir {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// openIn opens a path without side effects. Symbolic links are resolved below root.
func openIn(root, name string) (*os.File, error) {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %v", root, err) // not of the kind of an error of name
	}
	defer unix.Close(at)
	return openAt(at, name, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// openBelow opens a path in a directory without side effects, and without following symbolic links.
func openBelow(dir *os.File, name string) (*os.File, error) {
	if name == "." {
		fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), dir.Name()), nil
	}
	return openAt(int(dir.Fd()), name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

func openAt(dir int, name string, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EAGAIN && err != unix.EINTR { // something was renamed meanwhile
			return nil, err
		}
	}
}

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Kubelet is the kubelet's directory. GVisor's shim looks for volumes in the same place.
const Kubelet = "/var/lib/kubelet"

// The kubelet's directories inside a pod's directory (pkg/kubelet/config, pkg/volume/emptydir).
const (
	volumesDir  = "volumes/kubernetes.io~empty-dir"
	subpathsDir = "volume-subpaths"
)

var (
	validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	validUID  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,127}$`)
)

// Dir returns the directory of a pod's emptyDir volume, which need not exist. If the pod's UID or the name is not
// valid in Kubernetes, it returns an error.
func Dir(pod, name string) (string, error) {
	if !validUID.MatchString(pod) || !validName.MatchString(name) {
		return "", fmt.Errorf("volume %.80q of pod %.80q: Kubernetes gives no such names", name, pod)
	}
	return filepath.Join(dirOf(pod), name), nil
}

// dirOf returns the directory of all emptyDir volumes of a pod.
func dirOf(pod string) string { return filepath.Join(Kubelet, "pods", pod, volumesDir) }

// Mounted returns the name of the pod's volume that lies at a path of the node, and whether the path is the whole
// volume. If the path is only a part of a volume, that volume need not be an emptyDir.
func Mounted(pod, path string) (name string, whole, ok bool) {
	of := filepath.Join(Kubelet, "pods", pod) + "/"
	in, ok := strings.CutPrefix(filepath.Clean(path), of)
	if !ok || !validUID.MatchString(pod) {
		return "", false, false
	}
	name, whole = strings.CutPrefix(in, volumesDir+"/")
	if !whole {
		name, ok = strings.CutPrefix(in, subpathsDir+"/")
		name, _, _ = strings.Cut(name, "/")
	}
	return name, whole, ok && validName.MatchString(name)
}

// Elsewhere reports whether a path of the node looks like a pod's volume in the directory of a kubelet that is not at
// its usual place.
func Elsewhere(pod, path string) bool {
	_, _, here := Mounted(pod, path)
	in := filepath.Join("/pods", pod) + "/"
	return !here && (strings.Contains(path, in+volumesDir+"/") || strings.Contains(path, in+subpathsDir+"/"))
}

// Parts of a snapshot that hold a volume have names with this prefix and suffix.
const (
	partPrefix = "volume-"
	partSuffix = ".tar"
)

// Part returns the name of the part of a snapshot that holds a volume.
func Part(name string) string { return partPrefix + name + partSuffix }

// OfPart returns the name of the volume that a part of a snapshot holds. If the part holds no volume, ok is false. If
// the part has a volume's prefix but no valid name of a volume, that is an error.
func OfPart(part string) (name string, ok bool, err error) {
	name, ok = strings.CutPrefix(part, partPrefix)
	if !ok {
		return "", false, nil
	}
	name, ok = strings.CutSuffix(name, partSuffix)
	if !ok || !validName.MatchString(name) {
		return "", false, fmt.Errorf("part %.80q of the snapshot does not name a valid volume", part)
	}
	return name, true, nil
}

// Open opens the directory of a volume to be saved. Root is a path to the root of the node's file system: symbolic
// links on the way to dir are resolved below it.
func Open(root, dir string) (*os.File, error) {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the node's root %s: %w", root, err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat2(at, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

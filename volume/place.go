package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Kubelet is the kubelet's directory, the one where gVisor's shim too looks for volumes.
const Kubelet = "/var/lib/kubelet"

// The directories of the kubelet in that of a pod (pkg/kubelet/config, pkg/volume/emptydir).
const (
	volumesDir  = "volumes/kubernetes.io~empty-dir"
	subpathsDir = "volume-subpaths"
)

var (
	validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	validUID  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,127}$`)
)

// Dir returns the directory of a pod's emptyDir volume of that name, whether it is there or not. It is
// an error if either is none that Kubernetes gives.
func Dir(pod, name string) (string, error) {
	if !validUID.MatchString(pod) || !validName.MatchString(name) {
		return "", fmt.Errorf("volume %.80q of pod %.80q: no such names are given", name, pod)
	}
	return filepath.Join(dirOf(pod), name), nil
}

// dirOf returns the directory of all emptyDir volumes of a pod.
func dirOf(pod string) string { return filepath.Join(Kubelet, "pods", pod, volumesDir) }

// Mounted returns the name of the pod's volume that a container mounts by a path of the node, and
// whether it mounts the whole of it. Of what is mounted in part it is not known whether it is an emptyDir.
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

// The names of the parts of a snapshot that hold a volume each.
const (
	partPrefix = "volume-"
	partSuffix = ".tar"
)

// Part returns the name of the part of a snapshot that holds a volume.
func Part(name string) string { return partPrefix + name + partSuffix }

// OfPart returns the name of the volume that a part of a snapshot holds; ok is false if it holds none.
// A part that is called so although no volume can be is an error.
func OfPart(part string) (name string, ok bool, err error) {
	name, ok = strings.CutPrefix(part, partPrefix)
	if !ok {
		return "", false, nil
	}
	name, ok = strings.CutSuffix(name, partSuffix)
	if !ok || !validName.MatchString(name) {
		return "", false, fmt.Errorf("part %.80q of the snapshot is of no volume that there can be", part)
	}
	return name, true, nil
}

// Exists reports whether a directory is there; root is where the root of the node's file system is.
func Exists(root, dir string) (bool, error) {
	fi, err := os.Lstat(filepath.Join(root, dir))
	if os.IsNotExist(err) {
		return false, nil
	}
	return err == nil && fi.IsDir(), err
}

package kubelet

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Root is the kubelet's directory. GVisor's shim looks for volumes in the same place.
const Root = "/var/lib/kubelet"

// The kubelet's directories inside a pod's directory (pkg/kubelet/config, pkg/volume/emptydir).
const (
	volumesDir  = "volumes/" + emptyDir
	subpathsDir = "volume-subpaths"
)

var (
	validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	validUID  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,127}$`)
)

// VolumeDir returns the directory of a pod's emptyDir volume, which need not exist. If the pod's UID or the name is not
// valid in Kubernetes, it returns an error.
func VolumeDir(pod, name string) (string, error) {
	if !validUID.MatchString(pod) || !validName.MatchString(name) {
		return "", fmt.Errorf("volume %.80q of pod %.80q: Kubernetes gives no such names", name, pod)
	}
	return filepath.Join(volumesOf(pod), name), nil
}

// VolumesDir returns the directory of all emptyDir volumes of a pod, which need not exist. If no kubelet gives such a
// UID, ok is false.
func VolumesDir(pod string) (dir string, ok bool) { return volumesOf(pod), validUID.MatchString(pod) }

func volumesOf(pod string) string { return filepath.Join(Root, "pods", pod, volumesDir) }

// HasVolume reports whether the kubelet has made one directory for a pod's volume with that name, of whatever kind.
func HasVolume(pod, name string) bool { return hasVolume(Root, pod, name) }

func hasVolume(root, pod, name string) bool {
	if !validUID.MatchString(pod) || !validName.MatchString(name) {
		return false
	}
	dirs, err := filepath.Glob(filepath.Join(root, "pods", pod, "volumes", "*", name))
	return err == nil && len(dirs) == 1
}

// ValidVolume reports whether Kubernetes gives volumes such names.
func ValidVolume(name string) bool { return validName.MatchString(name) }

// Mounted returns the name of the pod's volume that lies at a path of the node, and whether the path is the whole
// volume. If the path is only a part of a volume, that volume need not be an emptyDir.
func Mounted(pod, path string) (name string, whole, ok bool) {
	of := filepath.Join(Root, "pods", pod) + "/"
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

// written are the kinds of volumes that the kubelet writes itself.
var written = []string{
	"kubernetes.io~configmap", "kubernetes.io~secret", projected, "kubernetes.io~downward-api",
}

const (
	projected = "kubernetes.io~projected"
	emptyDir  = "kubernetes.io~empty-dir"
)

// Outlives reports whether what lies at a path of the node may outlive a pod that mounts it: it is a persistent volume,
// or nothing of the kubelet's.
func Outlives(pod, path string) bool {
	_, in, ok := strings.Cut(path, podDir(pod))
	if !ok || pod == "" {
		return true
	}
	in, ok = strings.CutPrefix(in, "volumes/")
	kind, _, _ := strings.Cut(in, "/")
	return ok && kind != emptyDir && !slices.Contains(written, kind)
}

// InPod returns a path in the directory of a pod for another pod.
func InPod(path, pod, other string) string {
	before, in, ok := strings.Cut(path, podDir(pod))
	if !ok || pod == "" || !validUID.MatchString(other) {
		return path
	}
	return before + podDir(other) + in
}

func podDir(pod string) string { return "/pods/" + pod + "/" }

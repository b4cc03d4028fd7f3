package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Payload is a directory with the files of a ConfigMap, Secret, projected or downward API volume, as they were at one
// time. The kubelet gives it a new name whenever it writes the volume, and in each pod
// (pkg/volume/util/atomic_writer.go).
type Payload struct {
	Volume string // the volume's name
	Dir    string // the directory's name in the volume
}

// String returns the form that ParsePayload reads.
func (p Payload) String() string { return p.Volume + "/" + p.Dir }

// ParsePayload is the inverse of String. It refuses names that neither Kubernetes nor the kubelet gives.
func ParsePayload(s string) (Payload, error) {
	volume, dir, _ := strings.Cut(s, "/")
	if !validName.MatchString(volume) || !validPayload.MatchString(dir) {
		return Payload{}, fmt.Errorf("%.200q names no directory that a kubelet writes", s)
	}
	return Payload{Volume: volume, Dir: dir}, nil
}

// timestamped is how AtomicWriter names a directory: by the time, to which os.MkdirTemp adds a number.
const timestamped = `\.\.[0-9]{4}(?:_[0-9]{2}){5}\.[0-9]{1,20}`

var (
	validPayload = regexp.MustCompile(`^` + timestamped + `$`)
	inPayload    = regexp.MustCompile(`^(` + timestamped + `)(?:/(.+))?$`)
)

// InPayload returns the directory that the kubelet has written and that a path in a volume leads into, and the rest of
// the path below that, "." for the directory itself.
func InPayload(path string) (dir, rest string, ok bool) {
	m := inPayload.FindStringSubmatch(path)
	if m == nil {
		return "", "", false
	}
	if m[2] == "" {
		m[2] = "."
	}
	return m[1], m[2], true
}

// Written returns the name of the volume of a pod that lies at a path of the node, if the kubelet writes it.
func Written(pod, path string) (name string, ok bool) {
	name = filepath.Base(path)
	for _, kind := range written {
		if filepath.Clean(path) == filepath.Join(Root, "pods", pod, "volumes", kind, name) {
			return name, validUID.MatchString(pod) && validName.MatchString(name)
		}
	}
	return "", false
}

// WrittenDir returns the directory of a pod's volume that the kubelet writes. A volume whose name the API server has
// made up is found by the part of the name that is the same in each pod.
func WrittenDir(pod, name string) (string, error) { return writtenDir(Root, pod, name) }

func writtenDir(root, pod, name string) (string, error) {
	if !validUID.MatchString(pod) || !validName.MatchString(name) {
		return "", fmt.Errorf("volume %.80q of pod %.80q: Kubernetes gives no such names", name, pod)
	}
	volumes := filepath.Join(root, "pods", pod, "volumes")
	for _, kind := range written {
		dir := filepath.Join(volumes, kind, name)
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
	}
	if strings.HasPrefix(name, tokenPrefix) {
		if dirs, err := filepath.Glob(filepath.Join(volumes, projected, tokenPrefix+"*")); err == nil && len(dirs) == 1 {
			return dirs[0], nil
		}
	}
	return "", fmt.Errorf("the pod has no ConfigMap, Secret, projected or downward API volume %s: %w", name,
		fs.ErrNotExist)
}

// tokenPrefix begins the name of the volume with the token of a pod's ServiceAccount
// (plugin/pkg/admission/serviceaccount).
const tokenPrefix = "kube-api-access-"

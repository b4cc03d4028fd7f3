package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVolumes(t *testing.T) {
	const pod = "0f5e8a52-1a2b-4c3d-8e9f-001122334455"
	for path, want := range map[string]string{
		Root + "/pods/" + pod + "/volumes/kubernetes.io~empty-dir/a":                    "a true true",
		Root + "/pods/" + pod + "/volume-subpaths/b-1/main/0":                           "b-1 false true",
		Root + "/pods/" + pod + "/volumes/kubernetes.io~configmap/a":                    " false false",
		Root + "/pods/" + pod + "/volumes/kubernetes.io~empty-dir/../../x":              " false false",
		Root + "/pods/" + pod + "x/volumes/kubernetes.io~empty-dir/a":                   " false false",
		Root + "/pods/" + pod + "/volumes/kubernetes.io~empty-dir/a/b":                  "a/b true false",
		Root + "/pods/" + pod + "/etc-hosts":                                            "",
		"/somewhere/pods/" + pod + "/volumes/kubernetes.io~empty-dir/a":                 " false false",
		Root + "/pods/" + pod + "/volume-subpaths/../volumes/kubernetes.io~empty-dir/a": "a true true",
	} {
		name, whole, ok := Mounted(pod, path)
		if got := fmt.Sprint(name, " ", whole, " ", ok); ok != strings.HasSuffix(want, "true") || ok && got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]bool{
		"/data/kubelet/pods/" + pod + "/volume-subpaths/a/b/0": true, "/data/kubelet/pods/" + pod +
			"/volumes/kubernetes.io~empty-dir/a": true,
		Root + "/pods/" + pod + "/volume-subpaths/a/b/0": false, Root + "/pods/" + pod +
			"/volumes/kubernetes.io~secret/a": false,
	} {
		if got := Elsewhere(pod, path); got != want {
			t.Errorf("%s is elsewhere: %v", path, got)
		}
	}
	for _, bad := range [][2]string{
		{"..", "a"},
		{"", "a"},
		{pod, ""},
		{pod, ".."},
		{pod, "a/b"},
		{pod, "A"},
		{pod, strings.Repeat("a", 64)},
	} {
		if dir, err := VolumeDir(bad[0], bad[1]); err == nil {
			t.Errorf("%q are at %s", bad, dir)
		}
	}
}

// TestHostileVolumeName: a name from a pod is no pattern and no path.
func TestHostileVolumeName(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"empty-dir/data", "secret/token", "empty-dir/twice", "secret/twice"} {
		if err := os.MkdirAll(filepath.Join(root, "pods/pod-1/volumes/kubernetes.io~"+dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"data": true, "token": true, "twice": false, "none": false, "dat?": false, "*": false, "..": false, "": false,
		"../kubernetes.io~secret/token": false, "data/": false,
	} {
		if got := hasVolume(root, "pod-1", name); got != want {
			t.Errorf("the pod has volume %q: %v", name, got)
		}
	}
	if hasVolume(root, "*", "data") || hasVolume(root, "", "data") {
		t.Error("a pod without a name has a volume")
	}
}

// TestOutlives: what the kubelet writes, and emptyDir volumes, end with their pod. Persistent volumes do not, nor does
// what is elsewhere on the node.
func TestOutlives(t *testing.T) {
	for path, want := range map[string]bool{
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount": true,
		"/data/kubelet/pods/u/volumes/kubernetes.io~local-volume/pv": true,
		"/var/lib/kubelet/pods/other/volumes/kubernetes.io~secret/s": true, // a hostPath, whatever is there
		"/srv/data": true,
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/c":         false,
		"/data/kubelet/pods/u/volumes/kubernetes.io~empty-dir/e/sub":        false,
		"/var/lib/kubelet/pods/u/etc-hosts":                                 false,
		"/var/lib/kubelet/pods/u/containers/app/0123":                       false,
		"/var/lib/kubelet/pods/u/volume-subpaths/pv/app/0":                  false,
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/token/sub": false,
	} {
		if got := Outlives("u", path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if !Outlives("", "/pods//volumes/kubernetes.io~secret/s") {
		t.Error("a pod without a UID has no directory")
	}
	if got := InPod("/var/lib/kubelet/pods/u/volumes/x/y", "u", "v"); got != "/var/lib/kubelet/pods/v/volumes/x/y" {
		t.Errorf("in another pod: %s", got)
	}
	for _, bad := range []string{"", "../..", "a/b"} {
		if got := InPod("/pods/u/x", "u", bad); got != "/pods/u/x" {
			t.Errorf("in pod %q: %s", bad, got)
		}
	}
}

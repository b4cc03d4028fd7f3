package kubelet

import (
	"fmt"
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

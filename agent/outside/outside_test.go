package outside

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/hostfile"
)

// TestCompareInNewPod: the files of a claim are looked for in the directory of the new pod. What refuses a restore says
// what to do.
func TestCompareInNewPod(t *testing.T) {
	root := t.TempDir()
	const volume = "/var/lib/kubelet/pods/new/volumes/kubernetes.io~csi/pv/mount"
	name := filepath.Join(root, volume, "db/file")
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("some"), 0o600)); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	m := snapshot.Meta{Origin: snapshot.Origin{PodUID: "old"}, Volumes: []snapshot.Volume{{
		Host: strings.Replace(volume, "/new/", "/old/", 1), Container: "app", Path: "/data",
		Files: []snapshot.VolumeFile{{Path: "db/file", Size: 4, Modified: fi.ModTime().UnixNano()}},
	}}}
	if err := compare(t.Context(), root, &m, "new"); err != nil {
		t.Error(err)
	}
	if err := compare(t.Context(), root, &m, "another"); !errors.Is(err, hostfile.ErrChanged) {
		t.Errorf("a pod without the volume: %v", err)
	}
	if err := os.WriteFile(name, []byte("some more"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = compare(t.Context(), root, &m, "new")
	for _, word := range []string{
		"volume /data of container app", "db/file had 4 bytes", "has 9", "volume-check: ignore",
	} {
		if !errors.Is(err, hostfile.ErrChanged) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %v", word, err)
		}
	}
	if m.Volumes = nil; compare(t.Context(), "/nowhere", &m, "new") != nil {
		t.Error("a snapshot of an earlier agent is refused")
	}
}

// TestWarning: each volume that cannot be compared is named, up to a few.
func TestWarning(t *testing.T) {
	var f *Files
	v := snapshot.Volume{Container: "app", Path: "/data"}
	if got := f.Warning([]snapshot.Volume{v}); got != "" {
		t.Errorf("without a reason: %q", got)
	}
	v.Unknown = "its file system is fuse.x"
	got := f.Warning([]snapshot.Volume{v})
	if !strings.HasSuffix(got, "volume /data of container app (its file system is fuse.x)") {
		t.Errorf("one: %q", got)
	}
	v.Unknown = strings.Repeat("x", 10000)
	if got := f.Warning([]snapshot.Volume{v, v, v, v, v}); !strings.HasSuffix(got, " and 2 more") || len(got) > 1000 {
		t.Errorf("many: %q", got)
	}
	if got := (&Files{err: os.ErrPermission}).Warning(nil); !strings.Contains(got, "permission denied") {
		t.Errorf("none were found: %q", got)
	}
}

// TestMounts: each path of the node is looked at once.
func TestMounts(t *testing.T) {
	config, err := json.Marshal(&criapi.ContainerConfig{Mounts: []*criapi.Mount{
		{HostPath: "/b", ContainerPath: "/x"}, {HostPath: "/a", ContainerPath: "/y"}, {HostPath: "/b", ContainerPath: "/z"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := mountsOf(snapshot.Pod{Containers: []snapshot.Container{{Name: "app", Config: config}}})
	first := hostfile.Mount{Host: "/a", Container: "app", Path: "/y"}
	if err != nil || len(all) != 2 || all[0] != first || all[1].Path != "/x" {
		t.Errorf("%+v, %v", all, err)
	}
}

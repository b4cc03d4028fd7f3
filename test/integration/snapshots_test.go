package integration

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSnapshots does with snapshots what an operator does: list, inspect, verify, remove, sweep.
func TestSnapshots(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=8")
	s := n.checkpoint(p.Container("app"), "--name=first") // a container's id names its pod
	n.checkpoint("default/origin", "--name=second")
	n.noImageFiles()

	var list struct {
		Snapshots []snapshotted `json:"snapshots"`
	}
	n.decode(n.mustCLI("--output=json", "ls"), &list)
	if len(list.Snapshots) != 2 || list.Snapshots[0].Name != "first" || list.Snapshots[1].Name != "second" {
		t.Errorf("list: %+v", list)
	}
	inspected := n.snapshot("first")
	if inspected.Name != "first" || inspected.RawBytes != s.RawBytes || len(inspected.Timeline) < 6 {
		t.Errorf("inspect: %+v", inspected)
	}
	sum := 0.0
	for _, st := range inspected.Timeline {
		sum += st.TookMS
	}
	if math.Abs(sum-inspected.TotalMS) > 0.01 {
		t.Errorf("the stages add up to %v ms, the whole is %v ms", sum, inspected.TotalMS)
	}
	n.mustCLI("verify", "--read-data")
	var top struct{ Sandboxes []struct{ ID, Pod string } }
	n.decode(n.mustCLI("--output=json", "top"), &top)
	if len(top.Sandboxes) != 1 || top.Sandboxes[0].ID != p.ID || top.Sandboxes[0].Pod != "origin" {
		t.Errorf("top: %+v, the sandbox is %s", top, p.ID)
	}

	pack := n.glob("default/packs/*")[:1]
	undo := n.damage(pack, flip(0.5))
	out, err := n.cli("verify", "--read-data", "first", "second")
	if err == nil || !strings.Contains(out+err.Error(), filepath.Base(pack[0])) {
		t.Errorf("verify does not name the damaged pack %s: %v", pack[0], err)
	}
	undo()

	n.mustCLI("rm", "first")
	if _, err := n.cli("inspect", "first"); err == nil || !strings.Contains(err.Error(), "default/first") {
		t.Errorf("inspect of what was removed: %v", err)
	}
	if _, err := n.cli("rm", "first"); err == nil {
		t.Error("removed twice")
	}
	n.mustCLI("rm", "second")
	for _, root := range []string{spoolRoot, storeRoot} {
		if left, _ := filepath.Glob(filepath.Join(root, "default/packs/*")); len(left) > 0 {
			t.Errorf("packs that nothing names: %v", left)
		}
	}
	out = n.mustCLI("doctor")
	for _, want := range []string{"containerd v2.", "bridge: pods have veth pairs", "kernel"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q: %s", want, out)
		}
	}
}

// noImageFiles fails if gVisor wrote any image file.
func (n *node) noImageFiles() {
	n.Helper()
	for _, root := range []string{"/run/diapause", "/var/lib/diapause", os.TempDir()} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".img") {
				n.Errorf("image file %s", path)
			}
			return err
		})
		if err != nil {
			n.Error(err)
		}
	}
}

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHierarchical(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/burstable/pod1/abc": "/kubepods/burstable/pod1/abc",
		"kubepods-burstable-pod1_2.slice:cri-containerd:abc": "kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
		"system.slice:cri-containerd:abc": "system.slice/cri-containerd-abc.scope",
		"-.slice:x:y":                     "x-y.scope",
		"":                                "",
	} {
		if got := hierarchical(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

// TestLimitAbove asks for containers that do not exist yet. Their pod's cgroup does, except in the last case.
func TestLimitAbove(t *testing.T) {
	m := child(t)
	if err := os.WriteFile(filepath.Join(m.Dir(), m.files.limit), []byte("67108864"), 0); err != nil {
		t.Fatal(err)
	}
	for _, below := range []string{"", "container", "two/levels"} {
		got, err := LimitAbove(filepath.Join("/", m.group, below))
		if err != nil || got != 64<<20 {
			t.Errorf("%q: %d, %v, want %d", below, got, err, 64<<20)
		}
	}
	if got, err := LimitAbove("/../../no/such/pod"); err != nil || got != Unlimited {
		t.Errorf("no such pod: %d, %v", got, err)
	}
}

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

// TestFreeAbove: of the cgroups above a container that does not exist, those count that are not the pod's.
func TestFreeAbove(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	container := filepath.Join("/", m.group, "container")
	shared := func(string) bool { return false }
	if free, err := FreeAbove(container, shared); err != nil || free > 64<<20 || free < 60<<20 {
		t.Errorf("%d bytes are free, %v, want almost 64 MiB", free, err)
	}
	before, err := FreeAbove(filepath.Dir(container), m.is)
	if err != nil || before <= 64<<20 {
		t.Errorf("%d bytes are free, %v, want the limit of the pod's own cgroup left out", before, err)
	}
	if free, err := FreeAbove("/no/such/pod", shared); err != nil || free != Unlimited {
		t.Errorf("%d bytes are free, %v, want no limit", free, err)
	}
}

// TestRaiseAbove: the limit of the pod's cgroup is raised for a container that does not exist yet.
func TestRaiseAbove(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	for _, below := range []string{"", "container"} {
		changes, err := RaiseAbove(filepath.Join("/", m.group, below), 16<<20, m.is)
		if err != nil || len(changes) == 0 || changes[len(changes)-1].Is != "83886080" {
			t.Errorf("%q: %+v, %v, want 80 MiB", below, changes, err)
		}
	}
	others := func(string) bool { return false }
	if changes, err := RaiseAbove(filepath.Join("/", m.group), 16<<20, others); err != nil || len(changes) != 0 {
		t.Errorf("%+v, %v, want no changes of what is not the pod's", changes, err)
	}
	if changes, err := RaiseAbove("/no/such/pod", 16<<20, m.is); err != nil || len(changes) != 0 {
		t.Errorf("no such pod: %+v, %v", changes, err)
	}
}

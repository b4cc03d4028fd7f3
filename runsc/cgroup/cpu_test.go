package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/test/privileged"
)

// TestUnlimitCPU takes the limits of a pod away, and puts them back. The cgroup above the pod's keeps its own.
func TestUnlimitCPU(t *testing.T) {
	privileged.Need(t, "a cgroup")
	top, group, q, err := cpuOf(os.Getpid(), "/diapause-cpu-test/pod/container")
	if err != nil {
		t.Fatal(err)
	}
	pod := filepath.Dir(filepath.Join(top, group))
	files := []string{filepath.Join(filepath.Dir(pod), q.name), filepath.Join(pod, q.name)}
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.Remove(pod)
		os.Remove(filepath.Dir(pod))
	})
	passOn(t, top, filepath.Dir(pod), q)
	var was []string
	for _, f := range files {
		if err := os.WriteFile(f, []byte("50000"), 0); err != nil {
			t.Fatal(err)
		}
		is, err := read(f)
		if err != nil {
			t.Fatal(err)
		}
		was = append(was, is)
	}

	changes, err := UnlimitCPU("/diapause-cpu-test/pod/container", func(dir string) bool { return dir == pod })
	if err == nil {
		err = Apply(changes)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{was[0], q.none(was[1])} {
		if is, err := read(files[i]); err != nil || is != want {
			t.Errorf("%s is %q, %v, want %q", files[i], is, err, want)
		}
	}
	again, err := UnlimitCPU("/diapause-cpu-test/pod/container", func(dir string) bool { return dir == pod })
	if err != nil || len(again) > 0 {
		t.Errorf("again: %v, %v", again, err)
	}
	if left, err := Undo(changes); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	for i, f := range files {
		if is, err := read(f); err != nil || is != was[i] {
			t.Errorf("%s is %q, %v, was %q", f, is, err, was[i])
		}
	}
}

func TestUnlimitedQuota(t *testing.T) {
	for _, c := range []struct {
		q        quota
		is, none string
	}{
		{quota1, "20000", "-1"},
		{quota2, "20000 100000", "max 100000"},
		{quota2, "max 100000", "max 100000"},
	} {
		if got := c.q.none(c.is); got != c.none {
			t.Errorf("%s of %q: got %q, want %q", c.q.name, c.is, got, c.none)
		}
	}
}

// passOn has a cgroup and those above it pass the CPU controller on to those below. Version 1 needs no such thing.
func passOn(t *testing.T, top, dir string, q quota) {
	t.Helper()
	if q.name != quota2.name {
		return
	}
	if dir != top {
		passOn(t, top, filepath.Dir(dir), q)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
		t.Fatal(err)
	}
}

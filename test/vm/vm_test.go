package vm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/tools"
)

// limit bounds the life of a test's machine.
const limit = 8 * time.Minute

// TestCgroupV2 runs tests of other packages on a kernel whose cgroups are of version 2: that what is loaded is charged
// to the sidecar's cgroup, all of package cgroup: the kernel kills what stays over a limit that is put back, and that a
// pod's shim watches its cgroup once.
func TestCgroupV2(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := tools.Packages(ctx, tools.VM); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(root, ".cache", "vm")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	m := Machine{Cache: cache, MiB: 1000, Files: map[string]string{
		"/gofer.test":  build(t, ctx, root, "./runsc/gofer"),
		"/cgroup.test": build(t, ctx, root, "./runsc/cgroup"),
		"/shim.test":   build(t, ctx, root, "./runsc/shim"),
	}, Script: script}
	out, err := m.Run(ctx)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"TestLoadIsChargedToTheSidecar", "TestRaisedLimitIsPutBack", "TestHostileLimitInUse", "TestOneWatch",
	} {
		if !strings.Contains(out, "--- PASS: "+name) {
			t.Errorf("%s did not run", name)
		}
	}
	if strings.Contains(out, "--- SKIP: ") {
		t.Error("tests were skipped")
	}
}

// script is what the machine runs.
const script = `set -e
/gofer.test -test.run='^TestLoadIsChargedToTheSidecar$' -test.v -test.timeout=3m
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
/cgroup.test -test.v -test.timeout=3m
mkdir /sys/fs/cgroup/pod
(
	echo 0 > /sys/fs/cgroup/pod/cgroup.procs # this process
	/shim.test -test.run='^TestOneWatch$' -test.v -test.timeout=3m
)
`

// build builds the tests of a package, as a static program.
func build(t *testing.T, ctx context.Context, root, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "test")
	// Built as the programs are.
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", program, name)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s: %v\n%s", name, err, out)
	}
	return program
}

func TestEnded(t *testing.T) {
	for name, c := range map[string]struct {
		console, printed string
		ok               bool
	}{
		"succeeded": {"hello\r\nvm: script ended with 0\r\n[ 3.1] reboot: Power down\r\n", "hello\n", true},
		"failed":    {"no\r\nvm: script ended with 3\r\n", "no\n", false},
		"cut short": {"he", "he", false},
	} {
		t.Run(name, func(t *testing.T) {
			if printed, err := ended(c.console, nil); printed != c.printed || (err == nil) != c.ok {
				t.Errorf("got %q, %v", printed, err)
			}
		})
	}
}

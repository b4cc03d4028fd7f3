package gofer_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/test/privileged"
)

// sidecarVariable is set if the test program is to run as a sidecar.
const sidecarVariable = "DIAPAUSE_TEST_SIDECAR"

func TestMain(m *testing.M) {
	if os.Getenv(sidecarVariable) == "" {
		os.Exit(m.Run())
	}
	if sidecar.Run(sidecar.Args{SockFD: 3, OptionsFD: 4, DebugLogFD: -1, Reads: true},
		slog.New(slog.NewTextHandler(os.Stderr, nil))) != nil {
		os.Exit(1)
	}
}

// TestLoadIsChargedToTheSidecar runs a sidecar in a cgroup of its own, as runsc does. That cgroup is charged for
// what is loaded. The agent's is not, although the agent writes the memory and goes away in between.
func TestLoadIsChargedToTheSidecar(t *testing.T) {
	privileged.Need(t, "a cgroup")
	const size = 64 << 20
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	a := startAgent(t, path, &agent{src: im})
	defer func() { a.stop() }()
	pod := podCgroup(t)
	c, process := sentryIn(t, pod, path)
	defer explain(t, process)
	fd, mem := memory(t, size)

	r, err := c.OpenRead("pages.img")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	a.stop()
	a = startAgent(t, path, &agent{src: im})
	if err := load(c, fd, size, 1<<20); err != nil {
		t.Fatal(err)
	}
	used, _, err := pod.Usage()
	if err != nil || used < size/100*95 {
		t.Errorf("%d of %d bytes are charged to the sidecar's cgroup, %v", used, size, err)
	}
	t.Logf("%d bytes are charged for %d", used, size)
	if !bytes.Equal(mem, im.data) {
		t.Error("memory is not the image")
	}
	c.DecRef()
	if err := process.Wait(); err != nil {
		t.Errorf("sidecar: %v", err)
	}
}

// podCgroup makes a cgroup. It is removed when the test ends.
func podCgroup(t *testing.T) *cgroup.Memory {
	t.Helper()
	own, err := cgroup.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const unified = "/sys/fs/cgroup"
	parent := own.Dir()
	if _, err := os.Stat(filepath.Join(unified, "cgroup.controllers")); err == nil { // none below a cgroup with processes
		parent = unified
		err = os.WriteFile(filepath.Join(unified, "cgroup.subtree_control"), []byte("+memory"), 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(parent, "diapause-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	m, err := cgroup.MemoryAt(parent, dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sentryIn is sentry, with its sidecar as a process in a cgroup. The second result is that process.
func sentryIn(t *testing.T, in *cgroup.Memory, agentSocket string) (*stateipc.AsyncFileClient, *exec.Cmd) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := (sidecar.Options{
		Socket: agentSocket, Request: "r", Token: "t",
		Direction: sidecar.Restore,
	}).Write(dir); err != nil {
		t.Fatal(err)
	}
	options, err := os.Open(filepath.Join(dir, sidecar.OptionsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer options.Close()
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$1"`, in.Dir(), self)
	cmd.Env = append(os.Environ(), sidecarVariable+"=1")
	cmd.ExtraFiles = []*os.File{theirs, options}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := unet.NewSocket(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := stateipc.NewAsyncFileClient(urpc.NewClient(s))
	if err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

// explain prints what the goroutines of a failed test, and of its sidecar, were waiting for. The sidecar has ended when
// it returns.
func explain(t *testing.T, sidecar *exec.Cmd) {
	if !t.Failed() || sidecar.ProcessState != nil {
		return
	}
	if err := pprof.Lookup("goroutine").WriteTo(t.Output(), 2); err != nil {
		t.Error(err)
	}
	if err := sidecar.Process.Signal(unix.SIGQUIT); err != nil {
		t.Error(err)
	}
	t.Logf("sidecar: %v", sidecar.Wait())
}

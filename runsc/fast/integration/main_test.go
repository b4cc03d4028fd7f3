// Package integration has each build of runsc load what the other has saved: gVisor's own, and that of package fast.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

func TestMain(m *testing.M) { bed.Main(m) }

// The builds. Their programs are in the bed's PATH.
const (
	stock = "runsc"
	fast  = tools.RunscFast
)

// commandTime bounds one command of runsc.
const commandTime = time.Minute

// sandbox is a sandbox with a guest, under one build.
type sandbox struct {
	build, id, root string
	flags           []string // of runsc, besides those of command
}

// newSandbox makes a directory with a guest's bundle for a sandbox. What is started in it is removed at the end of the
// test.
func newSandbox(t *testing.T, build, id string) *sandbox {
	t.Helper()
	s := emptySandbox(t, build, id)
	writeBundle(t, s.root, nil, "--dir=/data", "--files=2000", "--waiting=300", "--threads=30")
	return s
}

// emptySandbox is newSandbox without a bundle.
func emptySandbox(t *testing.T, build, id string) *sandbox {
	t.Helper()
	s := &sandbox{build: build, id: id, root: t.TempDir()}
	t.Cleanup(func() {
		if err := s.command("delete", "--force", s.id).Run(); err != nil {
			t.Errorf("remove %s: %v", s.id, err)
		}
		// With --network=none runsc mounts an empty network namespace below its root, to be kept.
		if err := unix.Unmount(filepath.Join(s.root, "state", "null-netns"), unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return s
}

// writeBundle writes the bundle of a guest with these annotations and flags to dir.
func writeBundle(t *testing.T, dir string, annotations map[string]string, flags ...string) {
	t.Helper()
	program, err := exec.LookPath(stock)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := os.ReadFile(filepath.Join(filepath.Dir(program), "image", "guest"))
	if err != nil {
		t.Fatal(err)
	}
	spec := specs.Spec{
		Version:     "1.0.0",
		Annotations: annotations,
		Root:        &specs.Root{Path: filepath.Join(dir, "rootfs")},
		Process:     &specs.Process{Cwd: "/", Args: append([]string{"/guest", "--socket=" + socket}, flags...)},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/data", Type: "tmpfs", Source: "tmpfs"},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
		}},
	}
	config, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(spec.Root.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{"config.json": config, "rootfs/guest": guest} {
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// socket is where a guest is asked.
const socket = "/tmp/socket"

// command is a command of runsc. What it prints goes to a file, which a sandbox that stays may keep open.
func (s *sandbox) command(args ...string) *exec.Cmd {
	flags := []string{
		"--root=" + filepath.Join(s.root, "state"), "--platform=systrap", "--network=none", "--ignore-cgroups",
		"--restore-spec-validation=ignore",
	}
	return exec.Command(s.build, slices.Concat(flags, s.flags, args)...)
}

// run runs a command of runsc to its end.
func (s *sandbox) run(t *testing.T, args ...string) {
	t.Helper()
	if text, err := s.output(t, args...); err != nil {
		t.Fatalf("%s %s: %v\n%s", s.build, args[0], err, text)
	}
}

// output runs a command of runsc to its end, and returns what it has written.
func (s *sandbox) output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	out, err := os.CreateTemp(s.root, "runsc-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	plain := s.command(args...)
	cmd := exec.CommandContext(ctx, plain.Path, plain.Args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	failure := cmd.Run()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text)), failure
}

// start starts the guest, and waits until it has set everything up.
func (s *sandbox) start(t *testing.T) {
	t.Helper()
	s.run(t, "run", "--detach", "--bundle", s.root, s.id)
	s.run(t, "exec", s.id, "/guest", "--ask=wait", "--socket="+socket)
}

// check has the guest check all that it has set up.
func (s *sandbox) check(t *testing.T) {
	t.Helper()
	s.run(t, "exec", s.id, "/guest", "--ask=check", "--socket="+socket)
}

// save makes a checkpoint, and returns where it is. The sandbox runs on.
func (s *sandbox) save(t *testing.T, compression string) string {
	t.Helper()
	dir := t.TempDir()
	s.run(t, "checkpoint", "--leave-running", "--compression="+compression, "--image-path="+dir, s.id)
	return dir
}

// restore starts the sandbox from a checkpoint.
func (s *sandbox) restore(t *testing.T, image string, flags ...string) {
	t.Helper()
	s.run(t, "create", "--bundle", s.root, s.id)
	s.run(t, append(append([]string{"restore", "--detach"}, flags...), "--image-path="+image, s.id)...)
}

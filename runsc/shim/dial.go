package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"diapause.dev/runsc/forward"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// dialLimit bounds how long runsc may take to connect to a port inside the sandbox.
const dialLimit = 5 * time.Second

// outputLimit bounds how much of runsc's output is kept.
const outputLimit = 4 << 10

// errSaves refuses a connection into a sandbox that its own processes may save. The shim would not know when to close
// it.
var errSaves = errors.New("the pod's processes may save it: only ports that listen on the pod's address can be " +
	"reached")

// dial connects to a port of the loopback inside the sandbox.
func (s *sandbox) dial(ctx context.Context, port int) (forward.Stream, error) {
	if s.pod.saves(wholePrefix) {
		return nil, errSaves
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	defer dir.Close()
	name := fmt.Sprint("port-", s.ports.dials.Add(1))
	l, err := listenIn(dir, name)
	if err != nil {
		return nil, fmt.Errorf("socket for runsc: %w", err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if err := s.runscForward(ctx, name, port); err != nil {
		return nil, err
	}
	if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil { // runsc has connected already
		return nil, err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("runsc has not connected: %w", err)
	}
	return c, nil
}

// listenIn makes a socket in a directory, for root only. It uses the directory's descriptor, because the full path
// would be too long for a socket.
func listenIn(dir *os.File, name string) (*net.UnixListener, error) {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// runscForward makes runsc connect a socket in the bundle to a port of the sandbox.
func (s *sandbox) runscForward(ctx context.Context, socket string, port int) error {
	cmd, err := s.runsc(ctx, "port-forward", "--stream", socket, s.pod.sandbox, strconv.Itoa(port))
	if err != nil {
		return err
	}
	said := &excerpt{}
	cmd.Stdout, cmd.Stderr = said, said
	exit, err := runsccmd.Monitor.Start(cmd)
	if err != nil {
		return fmt.Errorf("runsc port-forward: %w", err)
	}
	status, err := runsccmd.Monitor.Wait(cmd, exit)
	if err == nil && status != 0 {
		err = errors.New(string(bytes.TrimSpace(said.kept)))
	}
	if err != nil {
		return fmt.Errorf("runsc port-forward, status %d: %w", status, err)
	}
	return nil
}

// excerpt keeps the beginning of what is written to it.
type excerpt struct{ kept []byte }

func (e *excerpt) Write(p []byte) (int, error) {
	e.kept = append(e.kept, p[:min(len(p), outputLimit-len(e.kept))]...)
	return len(p), nil
}

// runsc returns a command that runs runsc in the bundle. The command does not outlive this process.
func (s *sandbox) runsc(ctx context.Context, args ...string) (*exec.Cmd, error) {
	var state runsc.State
	if err := state.Load(s.dir); err != nil {
		return nil, fmt.Errorf("options of the shim: %w", err)
	}
	root, err := s.runscRoot(ctx)
	if err != nil {
		return nil, err
	}
	command := state.Options.BinaryName
	if command == "" {
		command = runsccmd.DefaultCommand
	}
	global := []string{"--root=" + root}
	for name, value := range state.Options.RunscConfig {
		global = append(global, "--"+name+"="+value)
	}
	cmd := exec.CommandContext(ctx, command, append(global, args...)...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// runscRoot returns the directory in which runsc keeps the state of the sandboxes of ctx's namespace.
func (s *sandbox) runscRoot(ctx context.Context) (string, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return "", err
	}
	var state runsc.State
	if err := state.Load(s.dir); err != nil {
		return "", fmt.Errorf("options of the shim: %w", err)
	}
	if state.Options.Root == "" {
		return filepath.Join(proc.RunscRoot, namespace), nil
	}
	return filepath.Join(state.Options.Root, namespace), nil
}

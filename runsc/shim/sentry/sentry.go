// Package sentry asks gVisor's kernel of a pod's sandbox, the sentry, what gVisor's task service does not: in gVisor's
// control protocol, or by a command of runsc.
package sentry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"diapause.dev/runsc/sleep"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// Sentry asks gVisor's kernel of a sandbox. Its methods may be called concurrently.
type Sentry struct {
	Bundle    string // directory of the sandbox container's bundle
	ID        string // of the sandbox container
	Namespace string // of containerd
}

// tablesCall asks the sentry, in gVisor's control protocol, to write its tables of TCP sockets to a file that is sent
// with the request. Process 1 of the sandbox's container is in the pod's network namespace.
const tablesCall = `{"method":"Fs.Cat","arg":{"files":["/proc/1/net/tcp","/proc/1/net/tcp6"]}}`

// Bounds of the tables and of the time that the sentry takes for them. A row has 150 bytes.
const (
	maxTables   = 8 << 20
	tablesLimit = 5 * time.Second
	maxAnswer   = 64 << 10
)

// synSent is how the tables write the state TCP_SYN_SENT (Linux, include/net/tcp_states.h).
const synSent = "02"

// Settled returns an error of kind ErrInUse while the pod sets up a TCP connection to somewhere. If it were saved in
// that state, the connection would fail after TCP's time limit of a minute, whatever the other end does.
func (s Sentry) Settled(ctx context.Context) error {
	tables, err := s.tables(ctx)
	if err != nil {
		return fmt.Errorf("%w: look at its connections: %w", sleep.ErrUnfit, err)
	}
	if n := connecting(tables); n > 0 {
		return fmt.Errorf("%w: connections that it is setting up: %d", sleep.ErrInUse, n)
	}
	return nil
}

// connecting returns how many sockets of these tables wait for the answer to their first segment. Lines that are no
// rows do not count.
func connecting(tables []byte) (n int) {
	for line := range bytes.Lines(tables) {
		if row := bytes.Fields(line); len(row) > 3 && string(row[3]) == synSent {
			n++
		}
	}
	return n
}

// tables returns the sentry's tables of TCP sockets, for IPv4 and IPv6.
func (s Sentry) tables(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tablesLimit)
	defer cancel()
	f, err := boundedFile(maxTables)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := s.control(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := ask(conn, tablesCall, nil, f); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	n, err := unix.Seek(int(f.Fd()), 0, io.SeekCurrent) // how much the sentry has written
	if err != nil || n < 0 || n > maxTables {
		return nil, fmt.Errorf("size of the tables: %d bytes: %w", n, err)
	}
	tables := make([]byte, n)
	if _, err := f.ReadAt(tables, 0); err != nil {
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	return tables, nil
}

// ask makes a request to a sentry, which gets files with it, and waits for its success. The result goes to what a
// pointer points to, unless that is nil.
func ask(conn *net.UnixConn, request string, result any, files ...*os.File) error {
	var rights []byte
	for _, f := range files {
		rights = append(rights, unix.UnixRights(int(f.Fd()))...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(request), rights, nil); err != nil {
		return fmt.Errorf("ask the sentry: %w", err)
	}
	var answer struct {
		Success bool            `json:"success"`
		Err     string          `json:"err"`
		Result  json.RawMessage `json:"result"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("answer of the sentry: %w", err)
	}
	switch {
	case answer.Err == unknownMethod:
		return errUnknownMethod
	case !answer.Success:
		return fmt.Errorf("the sentry answered: %.200q", answer.Err)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("answer of the sentry: %w", err)
	}
	return nil
}

// unknownMethod is what a sentry answers to a call that its build does not have (gVisor, urpc.ErrUnknownMethod).
const unknownMethod = "unknown method"

var errUnknownMethod = errors.New("the sentry does not know the call")

// boundedFile returns a file in memory that cannot hold more than size bytes, whoever writes to it.
func boundedFile(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("sockets", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sockets")
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("bound a file in memory: %w", err), f.Close())
	}
	return f, nil
}

// reduceLimit bounds the request by which the sentry frees memory.
const reduceLimit = 5 * time.Second

// reduceCall is that request, in gVisor's control protocol. It makes the sentry collect garbage. A sentry that is
// mostly idle does so only every two minutes.
const reduceCall = `{"method":"Usage.Reduce","arg":{"wait":false,"do_not_gc":false}}`

// Reduce asks the sentry to free memory that it no longer needs. It ignores the content of the answer.
func (s Sentry) Reduce(ctx context.Context) error {
	conn, err := s.control(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(reduceLimit)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(reduceCall)); err != nil {
		return fmt.Errorf("ask the sentry to free memory: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("ask the sentry to free memory: %w", err)
	}
	return nil
}

// control connects to the socket on which the sentry serves runsc. Runsc makes the socket in the first of these
// directories where it can.
func (s Sentry) control(ctx context.Context) (*net.UnixConn, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range []string{root, "/var/run", "/run"} {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "runsc-"+s.ID+".sock"))
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// outputLimit bounds how much of runsc's output is kept.
const outputLimit = 4 << 10

// Forward makes runsc connect a socket in the bundle to a port of the sandbox.
func (s Sentry) Forward(ctx context.Context, socket string, port int) error {
	cmd, err := s.command(ctx, "port-forward", "--stream", socket, s.ID, strconv.Itoa(port))
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

// command returns a command that runs runsc in the bundle. The command does not outlive this process.
func (s Sentry) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	var state runsc.State
	if err := state.Load(s.Bundle); err != nil {
		return nil, fmt.Errorf("options of the shim: %w", err)
	}
	root, err := s.root()
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
	cmd.Dir = s.Bundle
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// root returns the directory in which runsc keeps the state of the namespace's sandboxes.
func (s Sentry) root() (string, error) {
	var state runsc.State
	if err := state.Load(s.Bundle); err != nil {
		return "", fmt.Errorf("options of the shim: %w", err)
	}
	if state.Options.Root == "" {
		return filepath.Join(proc.RunscRoot, s.Namespace), nil
	}
	return filepath.Join(state.Options.Root, s.Namespace), nil
}

package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"diapause.dev/runsc/forward"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// dialLimit bounds how long runsc may take to connect to a port inside the sandbox.
const dialLimit = 5 * time.Second

// outputLimit bounds how much of what runsc says is kept.
const outputLimit = 4 << 10

// ports forwards to the sandbox what connects to the loopback of its network namespace. A sandbox for
// which that is not possible goes without.
type ports struct {
	opening sync.WaitGroup

	mu      sync.Mutex
	forward *forward.Forwarder // nil: not open
	held    bool
}

// addresses returns the addresses of a sandbox that is about to start.
func (s *sandbox) addresses() []netip.Addr {
	if s.pod.network == "" {
		return nil
	}
	addresses, err := forward.Addresses(s.pod.network)
	if err != nil {
		log.L.WithError(err).Warnf("addresses of sandbox %s", s.pod.sandbox)
	}
	return addresses
}

// openPorts begins to forward to the sandbox, which has been started, without keeping the caller waiting.
func (s *sandbox) openPorts(ctx context.Context, addresses []netip.Addr) {
	if s.pod.network == "" {
		return
	}
	id, ctx := s.pod.sandbox, context.WithoutCancel(ctx)
	s.ports.opening.Go(func() {
		f, err := forward.Open(ctx, forward.Options{
			Sandbox:   id,
			Namespace: s.pod.network,
			Addresses: addresses,
			Ready:     func(ctx context.Context) error { return s.askable(ctx, id) },
			Dial:      s.dial,
		})
		if err != nil {
			log.L.WithError(err).Warnf("ports of sandbox %s cannot be forwarded", id)
			return
		}
		s.ports.opened(f)
	})
}

func (p *ports) opened(f *forward.Forwarder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forward = f
	if p.held {
		f.Hold()
	}
}

// hold keeps gVisor from forwarding until the function that it returns is called.
func (p *ports) hold() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
	if p.forward != nil {
		p.forward.Hold()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = false
		if p.forward != nil {
			p.forward.Allow()
		}
	}
}

// close ends what was opened.
func (p *ports) close() error {
	p.opening.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.forward
	p.forward = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Delete removes a container that has ended, or what is left of a process in it. With the sandbox
// container ends what is forwarded to it.
func (s *sandbox) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ID == s.pod.sandbox && r.ExecID == "" {
		if err := s.ports.close(); err != nil {
			log.L.WithError(err).Warnf("end what is forwarded to sandbox %s", r.ID)
		}
	}
	return s.containers.Delete(ctx, r)
}

// errSaves is the error of a way into a sandbox that would be in the way of a save nobody announces.
var errSaves = errors.New("processes of the pod may have it saved: only what listens on the pod's address can be reached")

// dial connects to a port of the loopback inside the sandbox.
func (s *sandbox) dial(ctx context.Context, port int) (forward.Stream, error) {
	if s.pod.saves() {
		return nil, errSaves
	}
	// The kernel chooses a name that no other socket has.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket for runsc: %w", err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if err := s.runscForward(ctx, l.Addr().String(), port); err != nil {
		return nil, err
	}
	return accept(l)
}

// accept returns the connection that runsc has made, and given to the sandbox.
func accept(l *net.UnixListener) (forward.Stream, error) {
	if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil { // it is there
		return nil, err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("runsc has not connected: %w", err)
	}
	return c, nil
}

// runscForward has runsc connect a unix socket to a port of the sandbox.
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
		err = errors.New(said.String())
	}
	if err != nil {
		return fmt.Errorf("runsc port-forward, status %d: %w", status, err)
	}
	return nil
}

// excerpt keeps the beginning of what is written to it.
type excerpt struct{ bytes.Buffer }

func (e *excerpt) Write(p []byte) (int, error) {
	e.Buffer.Write(p[:min(len(p), outputLimit-e.Len())])
	return len(p), nil
}

// runsc returns a command of runsc on the sandboxes of this node. It does not outlive this process.
func (s *sandbox) runsc(ctx context.Context, args ...string) (*exec.Cmd, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	var state runsc.State
	if err := state.Load(s.dir); err != nil {
		return nil, fmt.Errorf("options of the shim: %w", err)
	}
	root, command := state.Options.Root, state.Options.BinaryName
	if root == "" {
		root = proc.RunscRoot
	}
	if command == "" {
		command = runsccmd.DefaultCommand
	}
	global := []string{"--root=" + filepath.Join(root, namespace)}
	for name, value := range state.Options.RunscConfig {
		global = append(global, "--"+name+"="+value)
	}
	cmd := exec.CommandContext(ctx, command, append(global, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

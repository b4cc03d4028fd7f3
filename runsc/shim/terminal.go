package shim

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
	settings "diapause.dev/runsc/terminal"
	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
	"gvisor.dev/gvisor/runsc/console"
)

// consoleSocket is the flag that tells runsc create where to send a terminal's master.
const consoleSocket = "--console-socket"

// sendLimit bounds how long gVisor's shim, in this process, may take to listen for a master.
const sendLimit = 5 * time.Second

// terminal is the terminal of a container. If the container has none, it stands for its standard streams.
type terminal struct {
	restored bool
	plain    bool               // the container has no terminal
	relays   []*relay           // of a restored container without a terminal
	set      *snapshot.Terminal // settings of a restored terminal; nil: those of a new one

	name    string       // of the container's end on the node; empty: not known yet
	replica *os.File     // the container's end, of a restored container that is not started yet
	relay   *runc.Socket // runsc create sends the master here; nil unless it runs
	socket  string       // gVisor's shim expects the master here
}

// terminals gives the containers of this process their terminals. GVisor's shim runs every command of runsc through
// it.
//
// For a container that is started, runsc makes the terminal. Runsc is told to send the master here first, so that the
// shim learns the terminal's name. For a container that is restored, runsc makes no terminal: a restored sentry
// accepts only standard streams. So the shim makes the terminal, and runsc start gets the container's end as its
// standard streams.
type terminals struct {
	once sync.Once
	next runsccmd.ProcessMonitor

	mu  sync.Mutex
	all map[string]*terminal // by container id
}

// attend makes the commands of runsc pass through t. Call it after the task service was made and before it creates a
// container.
func (t *terminals) attend() {
	t.once.Do(func() {
		t.next = runsccmd.Monitor
		runsccmd.Monitor = t
	})
}

// expect announces the terminal of a container before the container is created.
func (t *terminals) expect(id string, x *terminal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string]*terminal)
	}
	t.all[id] = x
}

// forget closes what is still open for a container that was not created, or is deleted.
func (t *terminals) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.all[id]; x != nil {
		delete(t.all, id)
		x.close()
	}
}

// of returns the terminal of the container that a command of runsc is for. It returns nil if there is none, or if it
// is another command.
func (t *terminals) of(cmd *exec.Cmd, command string) *terminal {
	if !slices.Contains(cmd.Args, command) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[cmd.Args[len(cmd.Args)-1]]
}

// started returns the terminal of the container that a command starts, or restores by itself.
func (t *terminals) started(cmd *exec.Cmd) *terminal {
	if x := t.of(cmd, "start"); x != nil {
		return x
	}
	return t.of(cmd, "restore")
}

// Start implements runsccmd.ProcessMonitor.
func (t *terminals) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	if x := t.of(cmd, "create"); x != nil && !x.plain {
		if err := x.prepare(cmd); err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
	}
	switch x := t.started(cmd); {
	case x != nil && x.replica != nil:
		cmd.Stdin, cmd.Stdout, cmd.Stderr = x.replica, x.replica, x.replica
		defer x.close()
	case x != nil && x.plain && x.restored:
		return t.startRelayed(cmd, x)
	}
	return t.next.Start(cmd)
}

// startRelayed starts a restored container that has no terminal.
func (t *terminals) startRelayed(cmd *exec.Cmd, x *terminal) (chan runc.Exit, error) {
	all, given, err := relays(cmd)
	if err != nil {
		return nil, err
	}
	defer closeAll(given)
	t.mu.Lock()
	x.relays = all
	t.mu.Unlock()
	for _, r := range all {
		go r.run() // until the container exits, see exited
	}
	return t.next.Start(cmd)
}

// exited ends the relays of a container that has ended.
func (t *terminals) exited(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.all[id]; x != nil {
		for _, r := range x.relays {
			r.end()
		}
	}
}

// Wait implements runsccmd.ProcessMonitor.
func (t *terminals) Wait(cmd *exec.Cmd, ch chan runc.Exit) (int, error) {
	status, err := t.next.Wait(cmd, ch)
	x := t.of(cmd, "create")
	if x == nil || x.relay == nil {
		return status, err
	}
	defer x.close()
	if err == nil && status == 0 {
		err = x.pass()
	}
	return status, err
}

// prepare changes the command that creates the container.
func (x *terminal) prepare(cmd *exec.Cmd) error {
	i := slices.Index(cmd.Args, consoleSocket)
	if i < 0 || i+1 >= len(cmd.Args) {
		return fmt.Errorf("%s is not in %q", consoleSocket, cmd.Args)
	}
	x.socket = cmd.Args[i+1]
	if x.restored {
		cmd.Args = slices.Delete(cmd.Args, i, i+2)
		return x.open()
	}
	var err error
	if x.relay, err = runc.NewTempConsoleSocket(); err == nil {
		cmd.Args[i+1] = x.relay.Path()
	}
	return err
}

// open makes the terminal of a restored container, and sends the master to gVisor's shim.
func (x *terminal) open() (err error) {
	if x.replica, err = console.NewWithSocket(x.socket); err != nil {
		return err
	}
	x.name = x.replica.Name()
	if x.set == nil {
		return nil
	}
	if err := settings.Set(x.replica, x.set); err != nil {
		slog.Warn("the terminal is not set as it was", "terminal", x.name, "error", err)
	}
	return nil
}

// pass receives the master from runsc, learns the name of the other end, and sends the master to gVisor's shim.
func (x *terminal) pass() error {
	master, err := x.relay.ReceiveMaster()
	if err != nil {
		return fmt.Errorf("terminal: receive its master from runsc: %w", err)
	}
	defer master.Close()
	if x.name, err = replicaName(master.Fd()); err == nil {
		err = sendMaster(x.socket, master.Fd())
	}
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	return nil
}

func (x *terminal) close() {
	if x.replica != nil {
		x.replica.Close()
		x.replica = nil
	}
	if x.relay != nil {
		x.relay.Close()
		x.relay = nil
	}
}

// replicaName returns the name of the other end of a terminal's master.
func replicaName(master uintptr) (string, error) {
	n, err := unix.IoctlGetInt(int(master), unix.TIOCGPTN)
	if err != nil {
		return "", fmt.Errorf("number of its replica: %w", err)
	}
	return fmt.Sprintf("/dev/pts/%d", n), nil
}

// sendMaster sends a terminal's master to a socket, as runsc does.
func sendMaster(socket string, master uintptr) error {
	c, err := net.DialTimeout("unix", socket, sendLimit)
	if err != nil {
		return fmt.Errorf("send its master: %w", err)
	}
	defer c.Close()
	_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte("pty-master"), unix.UnixRights(int(master)), nil)
	if err != nil {
		return fmt.Errorf("send its master to %s: %w", socket, err)
	}
	return nil
}

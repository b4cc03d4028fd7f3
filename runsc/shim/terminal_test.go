package shim

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	settings "diapause.dev/runsc/terminal"
	"github.com/containerd/console"
	runc "github.com/containerd/go-runc"
	"github.com/creack/pty"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// fakeMonitor replaces runsc: it keeps the commands, and does what create does where a test wants it.
type fakeMonitor struct {
	runsccmd.ProcessMonitor
	args   [][]string
	stdin  any
	create func(cmd *exec.Cmd)
	status int
}

func (m *fakeMonitor) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	m.args, m.stdin = append(m.args, cmd.Args), cmd.Stdin
	if m.create != nil {
		m.create(cmd)
	}
	return nil, nil
}

func (m *fakeMonitor) Wait(*exec.Cmd, chan runc.Exit) (int, error) { return m.status, nil }

// shimSide listens as gVisor's shim does. It returns the address, and a function that returns what was sent there.
func shimSide(t *testing.T) (string, func() console.Console) {
	t.Helper()
	s, err := runc.NewTempConsoleSocket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Path(), func() console.Console {
		master, err := s.ReceiveMaster()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { master.Close() })
		return master
	}
}

// TestTerminalRestored: runsc makes no terminal. GVisor's shim and runsc start get the two ends of one terminal,
// which has its old settings.
func TestTerminalRestored(t *testing.T) {
	m := &fakeMonitor{}
	c := terminals{next: m, all: make(map[string]*terminal)}
	x := &terminal{restored: true, set: &snapshot.Terminal{Rows: 33, Columns: 101}}
	c.expect("id", x)
	path, master := shimSide(t)
	for _, cmd := range []*exec.Cmd{
		{Args: []string{"runsc", "create", "--bundle", "b", consoleSocket, path, "--pid-file", "p", "id"}},
		{Args: []string{"runsc", "start", "id"}},
		{Args: []string{"runsc", "state", "id"}},
	} {
		ch, err := c.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(cmd, ch); err != nil {
			t.Fatal(err)
		}
		if f, ok := m.stdin.(*os.File); cmd.Args[1] == "start" && (!ok || f.Name() != x.name) {
			t.Errorf("runsc start has %v, want %s", m.stdin, x.name)
		} else if cmd.Args[1] != "start" && m.stdin != nil {
			t.Errorf("runsc %s has %v", cmd.Args[1], m.stdin)
		}
	}
	if want := []string{"runsc", "create", "--bundle", "b", "--pid-file", "p", "id"}; !slices.Equal(m.args[0], want) {
		t.Errorf("runs %q, want %q", m.args[0], want)
	}
	if x.replica != nil {
		t.Error("the container's end stays open in the shim")
	}
	name, err := replicaName(master().Fd())
	if err != nil || name != x.name {
		t.Errorf("the master is of %s, %v, want %s", name, err, x.name)
	}
	if s, err := settings.Read(x.name); err != nil || s.Rows != 33 || s.Columns != 101 {
		t.Errorf("set %+v, %v", s, err)
	}
}

// TestTerminalStarted: runsc makes the terminal, the shim learns its name, and gVisor's shim gets the master.
func TestTerminalStarted(t *testing.T) {
	var made string
	m := &fakeMonitor{create: func(cmd *exec.Cmd) {
		master, replica, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		made = replica.Name()
		if err := sendMaster(cmd.Args[slices.Index(cmd.Args, consoleSocket)+1], master.Fd()); err != nil {
			t.Error(err)
		}
		master.Close()
		t.Cleanup(func() { replica.Close() })
	}}
	c := terminals{next: m, all: make(map[string]*terminal)}
	x := &terminal{}
	c.expect("id", x)
	path, master := shimSide(t)
	cmd := &exec.Cmd{Args: []string{"runsc", "create", consoleSocket, path, "id"}}
	ch, err := c.Start(cmd)
	if err == nil {
		_, err = c.Wait(cmd, ch)
	}
	if err != nil || x.name != made || x.relay != nil {
		t.Fatalf("terminal %+v, %v, want %s", x, err, made)
	}
	if name, err := replicaName(master().Fd()); err != nil || name != made {
		t.Errorf("the master is of %s, %v, want %s", name, err, made)
	}
}

// TestTerminalFailed: a create that fails, or is for another container, leaves nothing behind.
func TestTerminalFailed(t *testing.T) {
	m := &fakeMonitor{status: 1}
	c := terminals{next: m, all: make(map[string]*terminal)}
	x := &terminal{}
	c.expect("id", x)
	path, _ := shimSide(t)
	cmd := &exec.Cmd{Args: []string{"runsc", "create", consoleSocket, path, "id"}}
	if _, err := c.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if status, err := c.Wait(cmd, nil); status != 1 || err != nil || x.relay != nil {
		t.Errorf("status %d, %v, %+v", status, err, x)
	}
	other := &exec.Cmd{Args: []string{"runsc", "create", consoleSocket, path, "other"}}
	if _, err := c.Start(other); err != nil || !slices.Contains(other.Args, path) {
		t.Errorf("another container: %q, %v", other.Args, err)
	}
	none := &exec.Cmd{Args: []string{"runsc", "create", "id"}}
	if _, err := c.Start(none); err == nil || !strings.Contains(err.Error(), consoleSocket) {
		t.Errorf("without a socket: %v", err)
	}
	c.forget("id")
	c.forget("id")
}

// TestWithoutTerminal: only the terminal is removed from the spec.
func TestWithoutTerminal(t *testing.T) {
	dir := t.TempDir()
	spec := `{"a": 1.50, "process": {"terminal": true, "args": ["sh"], "n": 2.50}}`
	if err := os.WriteFile(specPath(dir), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := withoutTerminal(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(specPath(dir))
	if want := `{"a":1.50,"process":{"args":["sh"],"n":2.50}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

package rootsocket

import (
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/privileged"
)

// dialVariable makes the test binary a process that dials the socket at that path. It exits with status 0 if it gets an
// answer.
const dialVariable = "ROOTSOCKET_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(dialVariable); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			os.Exit(2)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listenOn(t *testing.T, network, path string) *Listener {
	t.Helper()
	l, err := Listen(network, path, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// greet answers every connection with a byte until the listener is closed.
func greet(t *testing.T, l *Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{1})
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

// dialAs dials from a process of the given user, and returns the process's exit status.
func dialAs(t *testing.T, uid uint32, path string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), dialVariable+"="+path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestOnlyRoot opens a socket to everybody by its mode. Other users must still be refused, and later connections of
// root must be served.
func TestOnlyRoot(t *testing.T) {
	privileged.Need(t, "processes of other users")
	dir, err := os.MkdirTemp("", "rootsocket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	greet(t, listenOn(t, "unix", path))
	if got := dialAs(t, 65534, path); got != 2 {
		t.Errorf("another user, by the mode: status %d, want 2", got)
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		uid  uint32
		want int
	}{{65534, 1}, {1, 1}, {0, 0}, {65534, 1}, {0, 0}} {
		if got := dialAs(t, tt.uid, path); got != tt.want {
			t.Errorf("user %d: status %d, want %d", tt.uid, got, tt.want)
		}
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "socket")
	listenOn(t, "unixpacket", path)
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, fi, err, want)
		}
	}
}

func TestReplacesOldSocket(t *testing.T) {
	privileged.Need(t, "a client that is root")
	path := filepath.Join(t.TempDir(), "socket")
	old := listenOn(t, "unix", path)
	old.SetUnlinkOnClose(false)
	old.Close()
	greet(t, listenOn(t, "unix", path))
	c, err := net.DialTimeout("unix", path, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

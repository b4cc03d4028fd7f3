package forward

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"diapause.dev/test/privileged"
)

// newNamespace returns the path of a network namespace with a loopback device. It lasts until the test ends.
func newNamespace(t *testing.T) string {
	t.Helper()
	privileged.Need(t, "a network namespace")
	made, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	var path string
	go func() {
		defer close(ended)
		onThread(func() {
			err := unix.Unshare(unix.CLONE_NEWNET)
			if err == nil {
				path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
				err = up("lo")
			}
			made <- err
			<-end
		})
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	return path
}

// onThread calls f on a thread that ends afterwards. The program's first thread would not end.
func onThread(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			onThread(f)
			return
		}
		f()
	}()
	<-ended
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// within runs f in a namespace.
func within(t *testing.T, path string, f func() error) error {
	t.Helper()
	n, err := openNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	return n.Do(f)
}

// dial connects to a port of the namespace's loopback, as containerd does.
func dial(t *testing.T, path string, port int) (*net.TCPConn, error) {
	t.Helper()
	var conn *net.TCPConn
	err := within(t, path, func() error {
		c, err := net.Dial("tcp4", fmt.Sprintf("localhost:%d", port))
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// dialled is a dial that must not fail.
func dialled(t *testing.T, path string, port int) *net.TCPConn {
	t.Helper()
	c, err := dial(t, path, port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve handles each connection to a port of this namespace with f, and returns the port.
func serve(t *testing.T, f func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().(*net.TCPAddr).Port
}

// upper reads to the end, and answers with all that it read, in capitals.
func upper(c *net.TCPConn) {
	all, _ := io.ReadAll(c)
	c.Write(bytes.ToUpper(all))
}

// options returns options for a sandbox whose address is this namespace's loopback.
func options(t *testing.T) Options {
	return Options{
		Sandbox: "s", Namespace: newNamespace(t), Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Ready: func(context.Context) error { return nil },
		Dial:  func(context.Context, int) (Stream, error) { return nil, syscall.ECONNREFUSED },
	}
}

func open(t *testing.T, o Options) *Forwarder {
	t.Helper()
	f, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return f
}

// wantRefused checks that a connection to a port is broken, at once or after it is made.
func wantRefused(t *testing.T, path string, port int) {
	t.Helper()
	c, err := dial(t, path, port)
	if err == nil {
		wantReset(t, c)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// wantReset checks that a connection is broken, and not at a regular end.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d, %v; want %v", n, err, syscall.ECONNRESET)
	}
}

// wantEnd checks that a connection is at its regular end.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v; want %v", n, err, io.EOF)
	}
}

// ask sends a message, ends its direction, and checks that the message comes back in capitals.
func ask(t *testing.T, c *net.TCPConn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := c.Write([]byte("hello"))
	got, readErr := io.ReadAll(closedWrite(t, c))
	if string(got) != "HELLO" {
		t.Errorf("answer %q, %v", got, errors.Join(err, readErr))
	}
}

func closedWrite(t *testing.T, c *net.TCPConn) *net.TCPConn {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	return c
}

func TestForward(t *testing.T) {
	o := options(t)
	one, two := serve(t, upper), serve(t, upper)
	open(t, o)
	for _, port := range []int{one, two, one} {
		ask(t, dialled(t, o.Namespace, port))
	}
	if port := serve(t, func(*net.TCPConn) {}); port != 0 { // a server that closes without a word
		got, err := io.ReadAll(dialled(t, o.Namespace, port))
		if len(got) > 0 || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	}
}

// TestBulk sends much data both ways at once. The reader starts late.
func TestBulk(t *testing.T) {
	o := options(t)
	open(t, o)
	sent := make([]byte, 32<<20)
	rand.Read(sent)
	port := serve(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		c.Write(all)
	})
	c := dialled(t, o.Namespace, port)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- errors.Join(err, c.CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-wrote); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes come back, %v", len(got), len(sent), err)
	}
}

// TestClosedPort connects to a port on which nothing listens.
func TestClosedPort(t *testing.T) {
	o := options(t)
	open(t, o)
	wantRefused(t, o.Namespace, 9)
}

// TestBroken: if the sandbox breaks a connection, the client's breaks too.
func TestBroken(t *testing.T) {
	o := options(t)
	open(t, o)
	c := dialled(t, o.Namespace, serve(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.SetLinger(0)
	}))
	c.Write([]byte("x"))
	wantReset(t, c)
}

func TestNotReady(t *testing.T) {
	o := options(t)
	o.Ready = func(context.Context) error { return errors.New("not yet") }
	open(t, o)
	wantRefused(t, o.Namespace, serve(t, upper))
}

// TestClose ends a connection that neither end closes, and leaves nothing behind.
func TestClose(t *testing.T) {
	o := options(t)
	port := serve(t, func(c *net.TCPConn) {
		c.Write([]byte("x"))
		io.ReadAll(c)
	})
	f := open(t, o)
	c := dialled(t, o.Namespace, port)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, c)
	if _, err := dial(t, o.Namespace, port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: %v", err)
	}
	err := within(t, o.Namespace, func() error {
		tables, err := (&nftables.Conn{}).ListTables()
		if len(tables) > 0 {
			t.Errorf("%d tables are left", len(tables))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	open(t, o) // once more
	ask(t, dialled(t, o.Namespace, serve(t, upper)))
}

// TestLimit opens more connections than are relayed at a time.
func TestLimit(t *testing.T) {
	o := options(t)
	began := make(chan struct{}, 2*limit)
	port := serve(t, func(c *net.TCPConn) {
		began <- struct{}{}
		io.ReadAll(c)
	})
	open(t, o)
	conns := make([]*net.TCPConn, limit)
	for i := range conns {
		conns[i] = dialled(t, o.Namespace, port)
		<-began
	}
	late := dialled(t, o.Namespace, serve(t, upper))
	late.Write([]byte("hello"))
	late.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one too many: %v", err)
	}
	conns[0].Close()
	late.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := io.ReadAll(closedWrite(t, late)); string(got) != "HELLO" {
		t.Errorf("when there is room: %q, %v", got, err)
	}
}

func TestNamespaces(t *testing.T) {
	if _, err := Addresses("/proc/self/ns/net"); !errors.Is(err, ErrShared) {
		t.Errorf("addresses of the host: %v", err)
	}
	o := options(t)
	o.Namespace = "/proc/self/ns/net"
	if _, err := Open(t.Context(), o); !errors.Is(err, ErrShared) {
		t.Errorf("forward in the host's namespace: %v", err)
	}
	for _, path := range []string{"/proc/self/ns/mnt", "/proc/version"} {
		if _, err := Addresses(path); err == nil {
			t.Errorf("%s has addresses", path)
		}
	}
}

// TestKernelStack: a namespace from which the sandbox has not taken the addresses stays as it is.
func TestKernelStack(t *testing.T) {
	o := options(t)
	if got, err := Addresses(o.Namespace); err != nil || len(got) > 0 {
		t.Errorf("addresses %v, %v", got, err)
	}
	err := within(t, o.Namespace, func() error {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
		addr, err := netlink.ParseAddr("10.9.8.7/24")
		return errors.Join(err, netlink.LinkAdd(link), netlink.AddrAdd(link, addr), up("eth0"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Addresses(o.Namespace); err != nil || len(got) != 1 || got[0].String() != "10.9.8.7" {
		t.Errorf("addresses %v, %v", got, err)
	}
	if _, err := Open(t.Context(), o); !errors.Is(err, ErrKernelStack) {
		t.Errorf("forward: %v", err)
	}
	if _, err := dial(t, o.Namespace, 80); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the loopback is diverted: %v", err)
	}
}

package forward

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// gvisor dials as gVisor does: the whole connection ends when one direction does.
type gvisor struct {
	t     *testing.T
	serve func(*net.UnixConn)
	open  atomic.Int32
}

func (g *gvisor) dial(context.Context, int) (Stream, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ours, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		return nil, err
	}
	theirs, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	g.open.Add(1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.serve(theirs)
		g.open.Add(-1)
		theirs.Close()
	}()
	g.t.Cleanup(func() {
		ours.Close()
		<-ended
	})
	return ours, nil
}

// greet answers a message of five bytes.
func greet(c *net.UnixConn) {
	if _, err := io.ReadFull(c, make([]byte, 5)); err == nil {
		c.Write([]byte("HELLO"))
	}
}

func TestInside(t *testing.T) {
	g := &gvisor{t: t, serve: greet}
	o := options(t)
	o.Dial = g.dial
	open(t, o)
	ask(t, dialled(t, o.Namespace, 9))
	o.Namespace, o.Addresses = newNamespace(t), nil
	open(t, o)
	ask(t, dialled(t, o.Namespace, 9))
}

// TestSilence ends a connection inside that stays silent after its client has sent everything.
func TestSilence(t *testing.T) {
	g := &gvisor{t: t, serve: func(c *net.UnixConn) { io.Copy(io.Discard, c) }}
	o := options(t)
	o.Dial = g.dial
	open(t, o)
	c := dialled(t, o.Namespace, 9)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := io.ReadAll(closedWrite(t, c)); len(got) > 0 || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestHold: no connection inside stays open, and others are not touched.
func TestHold(t *testing.T) {
	g := &gvisor{t: t, serve: func(c *net.UnixConn) { io.Copy(c, c) }}
	o := options(t)
	o.Dial = g.dial
	f := open(t, o)
	echo := func(c *net.TCPConn) {
		t.Helper()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, 5)
		c.Write([]byte("hello"))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
			t.Errorf("echo %q, %v", got, err)
		}
	}
	outside := dialled(t, o.Namespace, serve(t, func(c *net.TCPConn) { io.Copy(c, c) }))
	c := dialled(t, o.Namespace, 9)
	echo(c)
	f.Hold()
	if n := g.open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	wantEnd(t, c)
	wantRefused(t, o.Namespace, 9)
	echo(outside)
	f.Allow()
	echo(dialled(t, o.Namespace, 9))
}

// TestHoldStubborn does not wait for ever for a sandbox that closes nothing.
func TestHoldStubborn(t *testing.T) {
	release := make(chan struct{})
	g := &gvisor{t: t, serve: func(c *net.UnixConn) { <-release }}
	o := options(t)
	o.Dial = g.dial
	f := open(t, o)
	c := dialled(t, o.Namespace, 9)
	for g.open.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	f.Hold()
	wantEnd(t, c)
	close(release)
}

// TestHoldDialling waits for a connection that is being made, and ends it.
func TestHoldDialling(t *testing.T) {
	g := &gvisor{t: t, serve: func(c *net.UnixConn) { io.Copy(io.Discard, c) }}
	o := options(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var made atomic.Bool
	o.Dial = func(ctx context.Context, port int) (Stream, error) {
		close(begun)
		<-release
		defer made.Store(true)
		return g.dial(ctx, port)
	}
	f := open(t, o)
	c := dialled(t, o.Namespace, 9)
	<-begun
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	f.Hold()
	if n := g.open.Load(); n != 0 || !made.Load() {
		t.Errorf("%d connections are open, made: %v", n, made.Load())
	}
	wantEnd(t, c)
}

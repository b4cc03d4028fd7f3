package connections

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// pair returns the two ends of a connection.
func pair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if near, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// repeatingPair returns a connection that repeats answers, and its other end.
func repeatingPair(t *testing.T, set *Set) (near net.Conn, far *net.UnixConn) {
	t.Helper()
	conn, far := pair(t)
	near, _, err := repeated{ttrpc.UnixSocketRequireSameUser(), set}.Handshake(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near, far
}

// TestSocketWakes: what waits for a socket is woken when something has come, and when the other end has gone, but not
// when the other end has taken what was written.
func TestSocketWakes(t *testing.T) {
	near, far := pair(t)
	s, err := takeOver(near)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	waits, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(waits)
	if err := s.ready.Control(func(fd uintptr) { // as Go's runtime does
		all := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET}
		err = unix.EpollCtl(waits, unix.EPOLL_CTL_ADD, int(fd), all)
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	wakes := func(after string, want int) {
		t.Helper()
		if n, err := unix.EpollWait(waits, make([]unix.EpollEvent, 9), 0); n != want || err != nil {
			t.Errorf("%d events after %s, want %d; %v", n, after, want, err)
		}
	}
	buf := make([]byte, 9)
	far.Write([]byte("question"))
	wakes("a question", 1)
	if n, err := s.receive(buf); string(buf[:n]) != "question" || err != nil {
		t.Errorf("received %q, %v", buf[:n], err)
	}
	s.send([]byte("answer"))
	far.Read(buf)
	wakes("an answer that was taken", 0)
	far.Write([]byte("more"))
	wakes("another question", 1)
	far.Write([]byte("more"))
	wakes("a question after one that was not read", 1)
	far.Close()
	wakes("the end", 1)
}

// TestSocketLarge: what is larger than what the kernel keeps arrives, in both directions at once.
func TestSocketLarge(t *testing.T) {
	near, far := repeatingPair(t, new(Set))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for _, c := range [][2]net.Conn{{near, far}, {far, near}} {
		go c[0].Write(sent)
		defer func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c[1], got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("what arrived at %T is not what was sent, or fails: %v", c[1], err)
			}
		}()
	}
}

// TestSocketClose: closing ends who reads and who writes, and again does no harm.
func TestSocketClose(t *testing.T) {
	near, _ := repeatingPair(t, new(Set))
	ended := make(chan error)
	go func() {
		_, err := near.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := near.Write(make([]byte, 16<<20)) // more than the kernel takes
		ended <- err
	}()
	for range 3 {
		if err := near.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("no error after it was closed")
		}
	}
	if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v, want that it is closed", err)
	}
	if _, err := near.Read([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v, want that it is closed", err)
	}
}

// TestStandingGone: a connection ends with its other end, also if that goes as soon as it has asked something that has
// a standing answer.
func TestStandingGone(t *testing.T) {
	question := binary.BigEndian.AppendUint32(nil, uint32(len(askStats)))
	question = append(append(question, 0, 0, 0, 1, typeRequest, 0), askStats...)
	var set Set
	set.Repeat()
	key, _ := appendQuestion(nil, question)
	_, period := set.answers.to(key)
	set.answers.keep(string(key), []byte{0, 0, 0, 0, 0, 0, 0, 1, typeResponse, 0}, period)
	for range 200 {
		near, far := repeatingPair(t, &set)
		go func() {
			far.Write(question)
			far.Close()
		}()
		if _, err := io.Copy(io.Discard, near); err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
		near.Close()
	}
}

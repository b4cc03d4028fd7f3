package sidecar

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Conn carries messages and file descriptors. Send may be called concurrently, Receive by one goroutine at a
// time.
type Conn struct {
	uc *net.UnixConn

	sendMu sync.Mutex
	out    []byte

	in  []byte
	oob []byte
}

// NewConn returns a Conn over a SOCK_SEQPACKET socket, which it owns.
func NewConn(uc *net.UnixConn) *Conn {
	return &Conn{uc: uc, in: make([]byte, maxPacket+1), oob: make([]byte, unix.CmsgSpace(2*4))}
}

// Dial connects to the agent's sidecar socket.
func Dial(path string) (*Conn, error) {
	uc, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	return NewConn(uc), nil
}

// Unix returns the socket, for its peer's credentials and deadlines.
func (c *Conn) Unix() *net.UnixConn { return c.uc }

// Close closes the socket. A Receive under way returns.
func (c *Conn) Close() error { return c.uc.Close() }

// Send sends a message, and at most one file descriptor beside it. A negative fd means none. The caller keeps the
// descriptor.
func (c *Conn) Send(m *Message, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	c.out = m.Append(c.out[:0])
	_, _, err := c.uc.WriteMsgUnix(c.out, oob, nil)
	return err
}

// Welcome tells a sidecar whether the agent takes its request. A refusal says why not.
func (c *Conn) Welcome(refusal error) error {
	m := Message{Kind: KindWelcome}
	if refusal != nil {
		m.Text = refusal.Error()
	}
	return c.Send(&m, -1)
}

// Receive receives a message and the file that came with it, nil if none did. The caller must close or drop the file. A
// malformed packet is an error, and so are two files. When the other end has hung up, or was killed, the error is
// io.EOF.
func (c *Conn) Receive(m *Message) (*File, error) {
	n, oobn, _, _, err := c.uc.ReadMsgUnix(c.in, c.oob)
	if errors.Is(err, unix.ECONNRESET) { // it has not read all that it was sent
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	f, err := oneFile(c.oob[:oobn])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		f.Drop()
		return nil, io.EOF
	}
	if err := m.Parse(c.in[:n]); err != nil {
		f.Drop()
		return nil, err
	}
	return f, nil
}

// oneFile returns the only file in a control message, or nil.
func oneFile(oob []byte) (*File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var fds []int
	for i := range cms {
		got, err := unix.ParseUnixRights(&cms[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if len(fds) > 1 {
		for _, fd := range fds {
			(&File{fd}).Drop()
		}
		return nil, errors.New("more than one file descriptor in a packet")
	}
	if len(fds) == 0 {
		return nil, nil
	}
	return &File{fds[0]}, nil
}

// File is a file that came with a message. Its sender has chosen it, so until it is known to be harmless (see
// runsc.CheckMemoryFile) nothing may be done with it that could wait: an os.File would poll it, and even closing it
// waits if it is on FUSE.
type File struct{ fd int }

// Fd returns the descriptor.
func (f *File) Fd() int { return f.fd }

// Close closes a file that is known to be harmless.
func (f *File) Close() error { return unix.Close(f.fd) }

// Drop closes any file, or nil, without waiting for that.
func (f *File) Drop() {
	if f != nil {
		go unix.Close(f.fd)
	}
}

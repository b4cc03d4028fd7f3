package connections

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// repeated wraps the connections that a handshake has admitted, so that they repeat standing answers.
type repeated struct {
	ttrpc.Handshaker
	set *Set
}

// Handshake implements ttrpc.Handshaker.
func (h repeated) Handshake(ctx context.Context, conn net.Conn) (net.Conn, any, error) {
	conn, peer, err := h.Handshaker.Handshake(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	socket, err := takeOver(conn)
	if err != nil {
		return nil, nil, err
	}
	return &repeating{Conn: conn, socket: socket, set: h.set}, peer, nil
}

// repeating is a connection that repeats standing answers.
type repeating struct {
	net.Conn // closed: it has the addresses
	socket   *socket
	set      *Set

	named bool // it is known which container it is for. Used by Read alone

	in  framing // of what was passed on to ttrpc. Used by Read alone
	key []byte  // room for a question. Used by Read alone

	mu    sync.Mutex
	out   framing // of what was written
	asked asked   // the last question that was passed on and whose answer may be kept
	room  []byte  // for an answer
}

// asked is a question that awaits its answer. The zero value is none.
type asked struct {
	stream   uint32
	question string
	period   int
}

// Read implements net.Conn. It does not return questions that it has answered.
func (c *repeating) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	closed := c.socket.receiving(func() bool {
		n, err = c.receive(p)
		return err != unix.EAGAIN
	})
	switch {
	case closed != nil:
		return 0, closed
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// receive does what the socket's receive does, without questions that it has answered.
func (c *repeating) receive(p []byte) (int, error) {
	for {
		n, err := c.socket.receive(p)
		if err != nil || n == 0 || !c.repeat(p[:n]) {
			return n, err
		}
		if n < len(p) { // that was all, see epoll(7); and the peer was there, or repeat had failed
			return 0, unix.EAGAIN
		}
	}
}

// Write implements net.Conn.
func (c *repeating) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(p)
	return c.send(p)
}

// Close implements net.Conn.
func (c *repeating) Close() error {
	c.set.forget(c)
	return c.socket.close()
}

// name notes which container the connection is for, by the first request that says so.
func (c *repeating) name(request []byte) {
	if id := containerOf(request); id != "" {
		c.named = true
		c.set.note(c, id)
	}
}

// repeat answers what was read, if it is a question with a standing answer, and reports whether it did.
func (c *repeating) repeat(p []byte) bool {
	if !c.named && c.in.between() {
		c.name(p)
	}
	whole := c.in.between() && isMessage(p)
	c.in.pass(p)
	if !whole {
		return false
	}
	var ok bool
	if c.key, ok = appendQuestion(c.key[:0], p); !ok {
		return false
	}
	answer, period := c.set.answers.to(c.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := streamOf(p)
	if answer == nil || !c.out.between() {
		c.asked = asked{}
		if period != 0 {
			c.asked = asked{stream: stream, question: string(c.key), period: period}
		}
		return false
	}
	c.room = append(c.room[:0], answer...)
	setStream(c.room, stream)
	_, err := c.send(c.room)
	return err == nil // otherwise ttrpc will meet the error
}

// keep keeps what is about to be written, if it is the answer to the last question. It is called with c.mu held.
func (c *repeating) keep(p []byte) {
	a := c.asked
	if a.period == 0 || !c.out.between() || !isMessage(p) || streamOf(p) != a.stream {
		return
	}
	c.asked = asked{}
	if isAnswer(p) {
		c.set.answers.keep(a.question, bytes.Clone(p), a.period)
	}
}

// send writes p. It is called with c.mu held.
func (c *repeating) send(p []byte) (int, error) {
	n, err := c.socket.send(p)
	c.out.pass(p[:n])
	return n, err
}

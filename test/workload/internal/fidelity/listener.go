package fidelity

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// listener has a socket that goes on listening, and dials it anew each time.
func (s *Suite) listener() error {
	r := s.record("listener")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	s.closes(l)
	s.run(r, func() error { return answer(l) })
	seq := uint64(0)
	s.every(r, 20*time.Millisecond, func() error {
		seq++
		return visit(l.Addr().String(), seq)
	})
	return nil
}

// answer sends the one message of each connection back.
func answer(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		n, err := io.CopyN(c, c, messageSize)
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
		if err != nil && n > 0 { // or who dialed gave it up before
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// dialLimit is how long a connection inside the sandbox may take.
const dialLimit = 2 * time.Second

// dial connects to the listener. A connect that a snapshot was taken in the middle of takes gVisor a
// minute in what is restored: so it is done again.
func dial(address string) (net.Conn, error) {
	for d := (net.Dialer{Timeout: dialLimit}); ; {
		c, err := d.Dial("tcp", address)
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			continue
		}
		return c, err
	}
}

func visit(address string, seq uint64) error {
	c, err := dial(address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(message(seq)); err != nil {
		return err
	}
	b := make([]byte, messageSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("visit %d: %w", seq, err)
	}
	return checkMessage(b, seq)
}

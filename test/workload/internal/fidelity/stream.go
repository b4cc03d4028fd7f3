package fidelity

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// converse sends to a child that echoes, and checks what comes back.
func (s *Suite) converse(r *record, in io.ReadCloser, out io.WriteCloser) {
	s.closes(in)
	s.closes(out)
	s.run(r, func() error { return send(out) })
	s.run(r, func() error {
		return receive(in, func([]byte) error { r.step(); return nil })
	})
}

func (s *Suite) pipe() error {
	r := s.record("pipe")
	childIn, out, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	in, childOut, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	s.converse(r, in, out)
	return s.child(r, []*os.File{childIn, childOut}, "pipe")
}

func (s *Suite) socketPair() error {
	r := s.record("socketpair")
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that Close unblocks
		return fmt.Errorf("socketpair: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "socketpair")
	s.converse(r, f, f)
	return s.child(r, []*os.File{os.NewFile(uintptr(fds[1]), "child")}, "socket")
}

func (s *Suite) unixStream() error {
	path := filepath.Join(s.options.Dir, "stream.sock")
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("unix stream: %w", err)
	}
	return s.dialed("unix stream", "unix", path)
}

func (s *Suite) loopback() error { return s.dialed("loopback tcp", "tcp", "127.0.0.1:0") }

// dialed converses with a child that dials.
func (s *Suite) dialed(name, network, address string) error {
	r := s.record(name)
	l, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer l.Close()
	if err := s.child(r, nil, "dial", network, l.Addr().String()); err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.converse(r, c, c)
	return nil
}

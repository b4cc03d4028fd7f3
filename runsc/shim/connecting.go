package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"diapause.dev/runsc/sleep"
	"golang.org/x/sys/unix"
)

// tablesCall asks the sentry, in gVisor's control protocol, to write its tables of TCP sockets to a file that is sent
// with the request. Process 1 of the sandbox's container is in the pod's network namespace.
const tablesCall = `{"method":"Fs.Cat","arg":{"files":["/proc/1/net/tcp","/proc/1/net/tcp6"]}}`

// Bounds of the tables and of the time that the sentry takes for them. A row has 150 bytes.
const (
	maxTables   = 8 << 20
	tablesLimit = 5 * time.Second
	maxAnswer   = 64 << 10
)

// synSent is how the tables write the state TCP_SYN_SENT (Linux, include/net/tcp_states.h).
const synSent = "02"

// settled returns an error of kind ErrInUse while the pod sets up a TCP connection to somewhere. If it were saved in
// that state, the connection would fail after TCP's time limit of a minute, whatever the other end does.
func (s *sandbox) settled(ctx context.Context) error {
	tables, err := s.tables(ctx)
	if err != nil {
		return fmt.Errorf("%w: look at its connections: %w", sleep.ErrUnfit, err)
	}
	if n := connecting(tables); n > 0 {
		return fmt.Errorf("%w: connections that it is setting up: %d", sleep.ErrInUse, n)
	}
	return nil
}

// connecting returns how many sockets of these tables wait for the answer to their first segment. Lines that are no
// rows do not count.
func connecting(tables []byte) (n int) {
	for line := range bytes.Lines(tables) {
		if row := bytes.Fields(line); len(row) > 3 && string(row[3]) == synSent {
			n++
		}
	}
	return n
}

// tables returns the sentry's tables of TCP sockets, for IPv4 and IPv6.
func (s *sandbox) tables(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tablesLimit)
	defer cancel()
	f, err := boundedFile(maxTables)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := s.control(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := ask(conn, tablesCall, f); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	n, err := unix.Seek(int(f.Fd()), 0, io.SeekCurrent) // how much the sentry has written
	if err != nil || n < 0 || n > maxTables {
		return nil, fmt.Errorf("size of the tables: %d bytes: %w", n, err)
	}
	tables := make([]byte, n)
	if _, err := f.ReadAt(tables, 0); err != nil {
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	return tables, nil
}

// ask makes a request to a sentry, which gets a file with it, and waits for its success.
func ask(conn *net.UnixConn, request string, f *os.File) error {
	if _, _, err := conn.WriteMsgUnix([]byte(request), unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("ask the sentry: %w", err)
	}
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("answer of the sentry: %w", err)
	}
	if !answer.Success {
		return fmt.Errorf("the sentry answered: %.200q", answer.Err)
	}
	return nil
}

// boundedFile returns a file in memory that cannot hold more than size bytes, whoever writes to it.
func boundedFile(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("sockets", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sockets")
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("bound a file in memory: %w", err), f.Close())
	}
	return f, nil
}

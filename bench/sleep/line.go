package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// answerLimit bounds the wait for an answer, beyond which it counts as lost.
const answerLimit = time.Minute

// line is an HTTP connection to a pod. Unlike http.Client it never sends a request again, and it sends no keepalives,
// which would wake a pod that has forgotten to answer. It serves one request at a time.
type line struct {
	net.Conn
	r *bufio.Reader
}

func dial(ctx context.Context, address string) (*line, error) {
	d := net.Dialer{Timeout: answerLimit, KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &line{conn, bufio.NewReader(conn)}, nil
}

// do sends a request, decodes the answer, and returns when its first byte came.
func (l *line) do(ctx context.Context, method, path string, into any) (first time.Time, err error) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if err := l.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return first, err
	}
	_, err = fmt.Fprintf(l, "%s %s HTTP/1.1\r\nHost: pod\r\nContent-Length: 0\r\n\r\n", method, path)
	if err != nil {
		return first, err
	}
	if _, err := l.r.Peek(1); err != nil {
		return first, err
	}
	return time.Now(), l.read(into)
}

// read reads an answer.
func (l *line) read(into any) error {
	resp, err := http.ReadResponse(l.r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s: %.200s", errWrong, resp.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	return nil
}

// What can become of a request.
const (
	refused = "refused" // the connection was refused
	reset   = "reset"   // the connection ended before the answer
	lost    = "lost"    // no answer came in time
	wrong   = "wrong"   // the answer is not what a pod that goes on where it was gives
)

// kindOf returns what became of a request that failed.
func kindOf(err error) string {
	switch {
	case errors.Is(err, errWrong):
		return wrong
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return reset
	}
	return lost
}

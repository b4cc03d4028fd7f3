package programs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// httpSession asks a program over HTTP; see package inside for the questions.
type httpSession struct {
	ip, port string
	short    bool // a new connection for each question
	conn     net.Conn
	r        *bufio.Reader
}

// overHTTP returns what dials a program at a port, over one connection for all questions or, if short, one for each.
func overHTTP(port string, short bool) func(context.Context, string) (Session, error) {
	return func(ctx context.Context, ip string) (Session, error) {
		s := &httpSession{ip: ip, port: port, short: short}
		return s, s.connect(ctx)
	}
}

func (s *httpSession) connect(ctx context.Context) error {
	conn, err := connect(ctx, s.ip, s.port)
	if err != nil {
		return err
	}
	s.conn, s.r = conn, bufio.NewReader(conn)
	return nil
}

// ask returns the answer to a question.
func (s *httpSession) ask(ctx context.Context, question string) (string, error) {
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return "", err
		}
	}
	if s.short {
		defer func() {
			s.conn.Close()
			s.conn = nil
		}()
	}
	deadline, _ := ctx.Deadline() // zero: none
	if err := s.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	return s.exchange(question)
}

func (s *httpSession) exchange(question string) (string, error) {
	address := "http://" + net.JoinHostPort(s.ip, s.port) + "/ask?q=" + url.QueryEscape(question)
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	r.Close = s.short
	if err := r.Write(s.conn); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(s.r, r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.1000s", answer.Status, body)
	}
	return strings.TrimSpace(string(body)), err
}

// say asks a question that is to be answered by ok.
func (s *httpSession) say(ctx context.Context, question string) error {
	answer, err := s.ask(ctx, question)
	if err == nil && answer != "ok" {
		err = fmt.Errorf("answer to %q: %.1000q", question, answer)
	}
	return err
}

func (s *httpSession) Ping(ctx context.Context) error { return s.say(ctx, "p") }

func (s *httpSession) Write(ctx context.Context, stream int, n int64) error {
	return s.say(ctx, fmt.Sprintf("w %d %d", stream, n))
}

func (s *httpSession) Check(ctx context.Context) (Found, error) {
	answer, err := s.ask(ctx, "c")
	if err != nil {
		return Found{}, err
	}
	return parseFound(answer)
}

func (s *httpSession) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}

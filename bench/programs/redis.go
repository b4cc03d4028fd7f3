package programs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"

	"diapause.dev/test/images"
)

// What is in Redis besides the streams: 200 MB in values of 4 KiB, each half random.
const (
	redisValue = 4 << 10
	redisKeys  = 200_000_000 / redisValue
	redisBatch = 256 // keys in one request
)

// redis is Redis with its data in memory alone.
func redis() *Program {
	return &Program{
		Name:    "redis",
		Image:   images.Debian{Name: "localhost/bench-redis:1", Packages: []string{"redis-server"}},
		Command: []string{"/usr/bin/redis-server", "--save", "", "--protected-mode", "no", "--bind", "0.0.0.0"},
		Fill:    fillRedis,
		Dial:    func(ctx context.Context, ip string) (Session, error) { return dialRedis(ctx, ip) },
	}
}

// redisSession speaks the protocol of Redis, RESP.
type redisSession struct {
	conn net.Conn
	r    *bufio.Reader
}

func dialRedis(ctx context.Context, ip string) (*redisSession, error) {
	conn, err := connect(ctx, ip, "6379")
	if err != nil {
		return nil, err
	}
	return &redisSession{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// do sends a command and returns its answer: string, int64 or []any.
func (s *redisSession) do(ctx context.Context, args ...string) (any, error) {
	deadline, _ := ctx.Deadline() // zero: none
	if err := s.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(s.conn, b.String()); err != nil {
		return nil, err
	}
	return s.read()
}

func (s *redisSession) read() (any, error) {
	line, err := s.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New("redis: " + rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redis: %w", err)
	case kind == ':':
		return n, nil
	case kind == '$':
		return s.text(n)
	case kind == '*':
		return s.list(n)
	}
	return nil, fmt.Errorf("redis: %.40q", line)
}

func (s *redisSession) text(n int64) (any, error) {
	if n < 0 {
		return "", nil // there is none
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(s.r, text); err != nil {
		return nil, err
	}
	return string(text[:n]), nil
}

func (s *redisSession) list(n int64) (any, error) {
	var list []any
	for range n {
		item, err := s.read()
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

func (s *redisSession) Ping(ctx context.Context) error {
	got, err := s.do(ctx, "PING")
	if err == nil && got != "PONG" {
		err = fmt.Errorf("redis: %v", got)
	}
	return err
}

func (s *redisSession) Write(ctx context.Context, stream int, n int64) error {
	length, err := s.do(ctx, "RPUSH", redisStream(stream), strconv.FormatInt(n, 10))
	if err == nil && length != n {
		err = fmt.Errorf("redis: stream %d has %v numbers, want %d", stream, length, n)
	}
	return err
}

func redisStream(stream int) string { return fmt.Sprintf("stream:%d", stream) }

func (s *redisSession) Check(ctx context.Context) (f Found, err error) {
	for i := range Streams {
		answer, err := s.do(ctx, "LRANGE", redisStream(i), "0", "-1")
		if err != nil {
			return f, err
		}
		list, _ := answer.([]any)
		for at, n := range list {
			if n != strconv.Itoa(at+1) {
				return f, fmt.Errorf("redis: number %d of stream %d is %v", at+1, i, n)
			}
		}
		f.Writes[i] = int64(len(list))
	}
	f.Digest, err = s.digest(ctx)
	return f, err
}

// digest is that of all values.
func (s *redisSession) digest(ctx context.Context) (string, error) {
	sum := sha256.New()
	for first := 0; first < redisKeys; first += redisBatch {
		args := []string{"MGET"}
		for i := first; i < min(first+redisBatch, redisKeys); i++ {
			args = append(args, fmt.Sprintf("value:%d", i))
		}
		answer, err := s.do(ctx, args...)
		if err != nil {
			return "", err
		}
		for i, v := range answer.([]any) {
			if len(v.(string)) != redisValue {
				return "", fmt.Errorf("redis: value %d has %d bytes", first+i, len(v.(string)))
			}
			io.WriteString(sum, v.(string))
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

func (s *redisSession) Close() error { return s.conn.Close() }

func fillRedis(ctx context.Context, ip string) error {
	s, err := dialRedis(ctx, ip)
	if err != nil {
		return err
	}
	defer s.Close()
	random := rand.NewChaCha8([32]byte{1})
	half := make([]byte, redisValue/2)
	for first := 0; first < redisKeys; first += redisBatch {
		args := []string{"MSET"}
		for i := first; i < min(first+redisBatch, redisKeys); i++ {
			random.Read(half)
			args = append(args, fmt.Sprintf("value:%d", i), string(half)+strings.Repeat("v", redisValue/2))
		}
		if _, err := s.do(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

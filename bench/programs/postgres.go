package programs

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"diapause.dev/test/images"
)

// postgres is PostgreSQL with pgbench at work beside the client.
func postgres() *Program {
	return &Program{
		Name: "postgres",
		Image: images.Debian{
			Name:     "localhost/bench-postgres:1",
			Packages: []string{"postgresql-15", "dash", "coreutils", "util-linux"},
			Files:    map[string][]byte{"prog/postgres.sh": file("postgres.sh")},
			Env:      []string{pathEnv, "PGTZ=UTC", "LC_ALL=C"},
		},
		Command: []string{"/bin/sh", "/prog/postgres.sh"},
		Dial:    func(ctx context.Context, ip string) (Session, error) { return dialPostgres(ctx, ip) },
	}
}

// postgresSession speaks the simple part of PostgreSQL's protocol, version 3.
type postgresSession struct {
	conn net.Conn
	r    *bufio.Reader
}

func dialPostgres(ctx context.Context, ip string) (*postgresSession, error) {
	conn, err := connect(ctx, ip, "5432")
	if err != nil {
		return nil, err
	}
	s := &postgresSession{conn: conn, r: bufio.NewReader(conn)}
	deadline, _ := ctx.Deadline() // zero: none
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	hello := "\x00\x03\x00\x00user\x00user\x00database\x00postgres\x00\x00"
	if err := s.send("", hello); err != nil {
		conn.Close()
		return nil, err
	}
	if _, err := s.rows(); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// send sends a message of a kind, which the first has not.
func (s *postgresSession) send(kind, body string) error {
	m := binary.BigEndian.AppendUint32([]byte(kind), uint32(len(body)+4))
	_, err := s.conn.Write(append(m, body...))
	return err
}

// maxMessage bounds one message, in bytes.
const maxMessage = 1 << 20

// rows reads messages until the server is ready for the next query, and returns the rows among them.
func (s *postgresSession) rows() (rows [][]string, err error) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(s.r, head[:]); err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > maxMessage {
			return nil, fmt.Errorf("postgres: message of %d bytes", size)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(s.r, body); err != nil {
			return nil, err
		}
		switch head[0] {
		case 'Z':
			return rows, err
		case 'E':
			err = fmt.Errorf("postgres: %q", body)
			if strings.HasPrefix(string(body), "SFATAL") {
				return nil, err
			}
		case 'D':
			rows = append(rows, columns(body))
		}
	}
}

// columns returns the values of a row; NULL is "".
func columns(body []byte) (row []string) {
	n := binary.BigEndian.Uint16(body)
	body = body[2:]
	for range n {
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		row = append(row, string(body[:max(size, 0)]))
		body = body[max(size, 0):]
	}
	return row
}

func (s *postgresSession) query(ctx context.Context, sql string) ([][]string, error) {
	deadline, _ := ctx.Deadline() // zero: none
	if err := s.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := s.send("Q", sql+"\x00"); err != nil {
		return nil, err
	}
	return s.rows()
}

// Ping also wants the accounts and the table of the client, which come after the server.
func (s *postgresSession) Ping(ctx context.Context) error {
	_, err := s.query(ctx, "SELECT (SELECT 1 FROM pgbench_accounts WHERE aid = 1), (SELECT count(*) FROM written LIMIT 1)")
	return err
}

func (s *postgresSession) Write(ctx context.Context, stream int, n int64) error {
	_, err := s.query(ctx, fmt.Sprintf("INSERT INTO written VALUES (%d, %d)", stream, n))
	return err
}

// sums are equal after each transaction of pgbench.
const sums = `SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
	(SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history),
	(SELECT count(*) || ' ' || sum(aid) FROM pgbench_accounts)`

func (s *postgresSession) Check(ctx context.Context) (f Found, err error) {
	rows, err := s.query(ctx, sums)
	if err != nil {
		return f, err
	}
	if r := rows[0]; r[0] != r[1] || r[0] != r[2] || r[0] != r[3] {
		return f, fmt.Errorf("postgres: the sums of pgbench's balances and of its history differ: %q", r)
	}
	f.Digest = rows[0][4]
	for i := range Streams {
		rows, err := s.query(ctx, fmt.Sprintf(
			"SELECT count(*), coalesce(min(n), 1), coalesce(max(n), 0) FROM written WHERE stream = %d", i))
		if err != nil {
			return f, err
		}
		if r := rows[0]; r[1] != "1" || r[0] != r[2] {
			return f, fmt.Errorf("postgres: stream %d has %s numbers from %s to %s", i, r[0], r[1], r[2])
		}
		if f.Writes[i], err = strconv.ParseInt(rows[0][0], 10, 64); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (s *postgresSession) Close() error {
	_ = s.send("X", "") // the server ends the session without it, too
	return s.conn.Close()
}

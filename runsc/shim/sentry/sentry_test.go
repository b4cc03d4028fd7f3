package sentry

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/runsc/traffic"
)

// tablesText is what gVisor writes: an IPv4 table with a listener and a connection that is being set up, and the header
// of an empty IPv6 table.
const tablesText = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode" +
	"                                                     \n" +
	"   1: 00000000:0000 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000\n" +
	"   2: 00000000:0000 00000000:0000 02 00000000:00000000 00:00000000 00000000     0        0 2 1 0000000000000000\n" +
	"  sl  local_address                         remote_address                        st tx_queue rx_queue\n"

func TestConnecting(t *testing.T) {
	if n := connecting([]byte(tablesText)); n != 1 {
		t.Errorf("%d connections are being set up, want 1", n)
	}
	if n := connecting([]byte(strings.ReplaceAll(tablesText, " 02 ", " 01 "))); n != 0 {
		t.Errorf("%d connections are being set up, want none", n)
	}
}

func FuzzConnecting(f *testing.F) {
	f.Add([]byte(tablesText))
	f.Fuzz(func(t *testing.T, tables []byte) {
		if n := connecting(tables); n > bytes.Count(tables, []byte(synSent)) {
			t.Errorf("%d connections in %q", n, tables)
		}
	})
}

// sentryOf returns a connection to a sentry that gets one request, and answers it.
func sentryOf(t *testing.T, answer string) *net.UnixConn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 1<<10))
		io.WriteString(conn, answer)
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.UnixConn)
}

func TestAsk(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{`{"success":true,"err":"","result":{}}`, ""},
		{`{"success":false,"err":"no such method"}`, "no such method"},
		{``, "EOF"},
		{`[]`, "answer"},
		{strings.Repeat(" ", 2*maxAnswer) + `{"success":true}`, "EOF"},
	} {
		f, err := boundedFile(1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		conn := sentryOf(t, c.answer)
		conn.SetDeadline(time.Now().Add(time.Minute))
		err = ask(conn, tablesCall, nil, f)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("answer %.40q: %v, want %q", c.answer, err, c.want)
		}
	}
}

// TestOwed: who waits for an answer is named, unless the policy ignores that.
func TestOwed(t *testing.T) {
	const result = `{"connections":[{"from":"[::ffff:10.0.0.5]:4711","port":8080,"bytes":80,"for":1500000000}]}`
	for _, c := range []struct {
		answer string
		ignore []traffic.Ignored
		want   string
	}{
		{`{"success":true,"result":{"connections":null}}`, nil, ""},
		{`{"success":true,"result":` + result + `}`, nil, "10.0.0.5]:4711 waits for an answer of port 8080 for 1.5s"},
		{`{"success":true,"result":` + result + `}`, []traffic.Ignored{{Port: 8081}}, "waits"},
		{`{"success":true,"result":` + result + `}`, []traffic.Ignored{{From: netip.MustParsePrefix("10.0.0.0/8")}}, ""},
		{`{"success":false,"err":"unknown method"}`, nil, errUnknownMethod.Error()},
		{`{"success":true,"result":{"connections":[{"from":"nowhere"}]}}`, nil, "answer of the sentry"},
		{`{"success":true,"result":{"connections":7}}`, nil, "answer of the sentry"},
	} {
		var got struct {
			Connections []unanswered `json:"connections"`
		}
		err := ask(sentryOf(t, c.answer), fmt.Sprintf(unansweredCall, leastRequest, time.Minute), &got)
		if err == nil {
			err = owed(got.Connections, c.ignore)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.answer, err, c.want)
		}
	}
}

// TestHostileTables has a sentry write more than the file may hold.
func TestHostileTables(t *testing.T) {
	f, err := boundedFile(4 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 8<<10)); err == nil {
		t.Error("it holds more than its size")
	}
	if err := f.Truncate(8 << 10); err == nil {
		t.Error("it grows")
	}
}

// TestExcerpt: an excerpt keeps the beginning of runsc's output, and accepts all of it.
func TestExcerpt(t *testing.T) {
	e := new(excerpt)
	for range 3 {
		if n, err := e.Write(make([]byte, outputLimit-1)); n != outputLimit-1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if len(e.kept) != outputLimit {
		t.Errorf("%d bytes are kept", len(e.kept))
	}
}

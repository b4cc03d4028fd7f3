package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
	"golang.org/x/sys/unix"
)

// TestCheckpointMet has new connections come for a pod all the time while it is saved. Each is answered, and nobody has
// to repeat a segment: a sandbox drops those that come while it is saved, and the shim repeats them. A busy machine may
// keep a few for longer than TCP waits. What a save drops is many.
func TestCheckpointMet(t *testing.T) {
	const rounds, every, long = 10, 2 * time.Millisecond, 400 * time.Millisecond
	const few = 0.05 // of the requests of a round
	n := start(t)
	p := n.sleeper("met", "--mib", "64")
	before := n.serving(p)
	least := 1.0 // the smallest share of segments that were repeated in a round
	for range rounds {
		var mu sync.Mutex
		var requests, repeated int
		var slowest time.Duration
		var asked sync.WaitGroup
		err := n.during("capture", request(p, false), func() {
			for began := time.Now(); time.Since(began) < long; time.Sleep(every) {
				asked.Go(func() {
					began := time.Now()
					boot, again, err := n.askCounting(p)
					if err != nil || boot != before.Boot {
						t.Errorf("asked while it is saved: life %q, %v", boot, err)
					}
					mu.Lock()
					defer mu.Unlock()
					requests++
					repeated += again
					slowest = max(slowest, time.Since(began))
				})
			}
		})
		if err != nil {
			t.Error(err)
		}
		asked.Wait()
		t.Logf("%d requests, the slowest %v; %d segments were repeated", requests, slowest, repeated)
		least = min(least, float64(repeated)/float64(requests))
	}
	if least > few {
		t.Errorf("in each of %d rounds at least %.0f %% of the segments had to be repeated", rounds, least*100)
	}
	n.alive(p, before)
}

// askCounting asks a pod on a new connection, and returns its life and how many segments the kernel had to repeat.
func (n *node) askCounting(p *bed.Pod) (boot string, repeated int, err error) {
	d := net.Dialer{Timeout: time.Minute}
	conn, err := d.DialContext(n.ctx, "tcp", p.IP+":8080")
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", 0, err
	}
	if _, err := io.WriteString(conn, "GET /state HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
		return "", 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	var s answers.State
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return "", 0, fmt.Errorf("answer: %w", err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", 0, err
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if failed != nil || err != nil {
		return "", 0, fmt.Errorf("state of the connection: %w, %w", failed, err)
	}
	return s.Boot, int(info.Total_retrans), nil
}

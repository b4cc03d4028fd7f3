package gap

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/test/workload/answers"
)

func TestReport(t *testing.T) {
	var m Meter
	for i := range maxGaps + 10 {
		m.add(answers.Gap{StartUnixNS: int64(i), MS: float64(i % 100)})
	}
	r := m.Report(true)
	if len(r.Gaps) != maxGaps || r.Gaps[0].StartUnixNS != 10 || r.MaxMS != 99 || r.At != 99 {
		t.Errorf("got %d gaps from %d on, longest %v at %d", len(r.Gaps), r.Gaps[0].StartUnixNS, r.MaxMS, r.At)
	}
	if r = m.Report(false); len(r.Gaps) != 0 || r.MaxMS != 0 {
		t.Errorf("after a reset: %+v", r)
	}
}

// TestStopped stops this process for a while, as a pause does, and wants to see that gap.
func TestStopped(t *testing.T) {
	const stopped = 200 * time.Millisecond
	if os.Getenv("GAP_CHILD") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStopped$", "-test.v")
		cmd.Env = append(os.Environ(), "GAP_CHILD=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		for _, s := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(stopped)
		}
		buf := make([]byte, 4096)
		n, _ := out.Read(buf)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, buf[:n])
		}
		return
	}
	var m Meter
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	m.Run(ctx)
	if r := m.Report(false); r.MaxMS < 150 || r.MaxMS > 900 {
		t.Errorf("stopped for %v, saw %v ms", stopped, r.MaxMS)
	}
}

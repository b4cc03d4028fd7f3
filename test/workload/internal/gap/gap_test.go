package gap

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
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

// TestStopped stops a process again and again, as pauses do, until the process sees such a gap.
func TestStopped(t *testing.T) {
	const stopped = 200 * time.Millisecond
	if os.Getenv("GAP_CHILD") != "" {
		see(t, stopped)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStopped$")
	cmd.Env = append(os.Environ(), "GAP_CHILD=1")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		for _, s := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%v: %s", err, out.String())
				}
				return
			case <-time.After(stopped):
			}
		}
	}
}

// see measures until there is a gap that is nearly as long.
func see(t *testing.T, long time.Duration) {
	var m Meter
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go m.Run(ctx)
	for m.Report(false).MaxMS < milliseconds(long)*3/4 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("stopped for %v again and again, saw %v ms", long, m.Report(false).MaxMS)
		}
	}
}

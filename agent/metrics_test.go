package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

func TestMetricsAddress(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "", "127.0.0.1", "127.0.0.1:http:x"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := newMetrics().serve(ctx, address)
		if cancel(); err == nil || ctx.Err() == context.DeadlineExceeded {
			t.Errorf("address %q is served", address)
		}
	}
	if err := newMetrics().serve(t.Context(), "0.0.0.0:9"); !errors.Is(err, errkind.ErrInvalid) ||
		!strings.Contains(err.Error(), "0.0.0.0:9") {
		t.Errorf("got %v", err)
	}
}

func TestMetricsServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	m := newMetrics()
	m.Checkpoint(nil, time.Second, []snapshot.Stage{{Name: "capture", Took: time.Millisecond}})
	m.Checkpoint(errkind.ErrStopping, time.Second, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.serve(ctx, address) }()
	text := fetch(t, "http://"+address+"/metrics")
	for _, want := range []string{
		`diapause_checkpoints_total{result="ok"} 1`, `diapause_checkpoints_total{result="failed"} 1`,
		`diapause_checkpoint_stage_seconds_count{stage="capture"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not served", want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// fetch gets a page, and retries until the server answers.
func fetch(t *testing.T, url string) string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := http.Get(url)
		if err != nil {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			continue
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// TestSeriesFromTheStart: counters with labels have all their series before the first event. Otherwise increase() would
// not see it, and no alert would fire.
func TestSeriesFromTheStart(t *testing.T) {
	m := newMetrics()
	none := func() int { return 0 }
	newSleepMetrics(m.registry)
	countSleeps(m.registry, none, none, none)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		if f.GetType().String() == "COUNTER" {
			got[f.GetName()] = len(f.Metric)
		}
	}
	for name, want := range map[string]int{
		"diapause_checkpoints_total": 2, "diapause_restores_total": 2, "diapause_sleeps_total": 2,
		"diapause_sleeps_for_memory_total": 2, "diapause_wake_packets_total": 2, "diapause_wake_admissions_total": 3,
		"diapause_wakes_total": len(wakeCauses) + 1, "diapause_checkpoint_refusals_total": len(budget.Names),
		"diapause_failed_wakes_total": 1,
	} {
		if got[name] != want {
			t.Errorf("%s has %d series, want %d", name, got[name], want)
		}
	}
}

package identity

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		i := New()
		done := make(chan struct{})
		go func() { i.Run(ctx); close(done) }()
		time.Sleep(time.Second + answers.Tick/2)
		if got := i.State().Counter; got != 100 {
			t.Errorf("counter after 1 s is %d, want 100", got)
		}
		cancel()
		<-done
	})
}

func TestBootIsDrawn(t *testing.T) {
	if a, b := New().State().Boot, New().State().Boot; a == b || a == "" {
		t.Errorf("boot ids %q and %q", a, b)
	}
}

func TestSample(t *testing.T) {
	got := sample([]string{"PATH=/bin", "WORKLOAD_A=b=c", "SECRET=x"})
	if want := map[string]string{"PATH": "/bin", "WORKLOAD_A": "b=c"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

package checkpoint

import (
	"errors"
	"testing"
	"time"

	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// discarding returns a capture that keeps no pages.
func discarding() *capture.Capture {
	return capture.New(capture.Options{Scope: snapshot.WholePod, Pages: capture.Discard{}, Chunk: 64 << 10})
}

func TestCaptureWelcomesOnce(t *testing.T) {
	c := &captures{expected: make(map[string]*expectedCapture)}
	o := sidecar.Options{Request: "r", Token: "secret"}
	for _, stranger := range []sidecar.Options{{Request: "r", Token: "secret"}, {Request: "other", Token: "secret"}} {
		if err := c.take(stranger, nil); !errors.Is(err, requests.ErrUnknown) {
			t.Errorf("before: %v", err)
		}
	}
	forget := c.expect(o, discarding())
	for _, token := range []string{"", "Secret", "secret "} {
		if err := c.take(sidecar.Options{Request: "r", Token: token}, nil); !errors.Is(err, requests.ErrUnknown) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	agent, own, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.take(o, agent); err != nil {
		t.Fatal(err)
	}
	if err := c.take(o, nil); !errors.Is(err, requests.ErrUnknown) {
		t.Errorf("the second time: %v", err)
	}
	over := make(chan struct{})
	go func() {
		forget()
		close(over)
	}()
	select {
	case <-over:
		t.Error("forgotten while the sentry is being served")
	case <-time.After(50 * time.Millisecond):
	}
	own.Close()
	<-over
}

func TestCaptureNeverCame(t *testing.T) {
	c := &captures{expected: make(map[string]*expectedCapture)}
	o := sidecar.Options{Request: "r", Token: "secret"}
	forget := c.expect(o, discarding())
	if !c.isExpected("r") {
		t.Error("not expected")
	}
	forget() // does not wait
	if err := c.take(o, nil); c.isExpected("r") || !errors.Is(err, requests.ErrUnknown) {
		t.Errorf("after: %v", err)
	}
}

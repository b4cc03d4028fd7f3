package checkpoint

import (
	"context"
	"crypto/subtle"
	"fmt"
	"sync"

	"diapause.dev/agent/requests"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// captures holds the checkpoints whose sidecars are expected.
type captures struct {
	mu       sync.Mutex
	expected map[string]*expectedCapture // by request
}

type expectedCapture struct {
	token   string
	capture *capture.Capture
}

// expect accepts the sidecar of a request, once. forget ends that. If the sidecar has come, forget also waits for the
// end of the capture: after that nothing writes to its pages.
func (c *captures) expect(o sidecar.Options, to *capture.Capture) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[o.Request] = &expectedCapture{token: o.Token, capture: to}
	return func() {
		c.mu.Lock()
		_, waiting := c.expected[o.Request]
		delete(c.expected, o.Request)
		c.mu.Unlock()
		if !waiting {
			to.Wait()
		}
	}
}

// take serves a sentry's socket if the socket's request is expected.
func (c *captures) take(o sidecar.Options, sock int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.expected[o.Request]
	if e == nil || subtle.ConstantTimeCompare([]byte(e.token), []byte(o.Token)) != 1 {
		return fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	delete(c.expected, o.Request)
	go e.capture.Serve(sock) // forget waits for it; if it fails, the image is incomplete
	return nil
}

func (c *captures) isExpected(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expected[request] != nil
}

// Sidecar serves a checkpoint's sidecar, which hands over the socket of a sentry that is saving its sandbox. If Sidecar
// returns no error, it owns the socket.
func (cs *Checkpoints) Sidecar(o sidecar.Options, sock int) error {
	if o.Direction.OfWorkload() {
		return cs.saved(o, sock)
	}
	return cs.captures.take(o, sock)
}

// Wanted reports whether the directory of a request must stay: its sidecar is expected, or its sandbox may still save
// itself.
func (cs *Checkpoints) Wanted(ctx context.Context, request string) bool {
	return cs.captures.isExpected(request) || cs.waiting(ctx, request)
}

package agent

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"

	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// captures are the checkpoints whose sidecar may come.
type captures struct {
	mu       sync.Mutex
	expected map[string]*expectedCapture // by request
}

type expectedCapture struct {
	token   string
	capture *capture.Capture
}

var errUnknownRequest = errors.New("no such request: it has ended, or its token is wrong")

// expect makes the sidecar of a request welcome, once. The function returned ends that and, if the
// sidecar has come, waits until the capture is over: nothing is written to its pages any more.
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

// take serves a sentry's socket if its request is expected.
func (c *captures) take(o sidecar.Options, sock int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.expected[o.Request]
	if e == nil || subtle.ConstantTimeCompare([]byte(e.token), []byte(o.Token)) != 1 {
		return fmt.Errorf("request %s: %w", o.Request, errUnknownRequest)
	}
	delete(c.expected, o.Request)
	go e.capture.Serve(sock) // who expects it waits for it; its error shows in the image
	return nil
}

// sidecarHandler implements gofer.Handler.
type sidecarHandler struct{ a *Agent }

// Checkpoint implements gofer.Handler.
func (h sidecarHandler) Checkpoint(o sidecar.Options, sock int) error {
	if o.Direction.OfWorkload() {
		return h.a.saved(o, sock)
	}
	return h.a.captures.take(o, sock)
}

// Restore implements gofer.Handler.
func (h sidecarHandler) Restore(o sidecar.Options) (gofer.Source, error) {
	return h.a.restores.source(o)
}

func (c *captures) isExpected(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expected[request] != nil
}

package checkpoint

import (
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

// take serves a sidecar if its request is expected. If take returns no error, it owns conn.
func (c *captures) take(o sidecar.Options, conn *sidecar.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.expected[o.Request]
	if e == nil || subtle.ConstantTimeCompare([]byte(e.token), []byte(o.Token)) != 1 {
		return fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	delete(c.expected, o.Request)
	go func() { // forget waits for it
		_ = conn.Welcome(nil) // if that fails the sidecar is gone, and Serve ends
		e.capture.Serve(conn)
	}()
	return nil
}

func (c *captures) isExpected(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expected[request] != nil
}

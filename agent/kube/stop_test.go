package kube_test

import (
	"net/url"
	"testing"

	"diapause.dev/agent/kube"
)

// TestStopUnheard: an agent that has heard nothing from the API server ends when it is told to.
func TestStopUnheard(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{}, 1)
	r := w.start(w.node("a"), func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(failing(func(*url.URL) bool {
			select {
			case asked <- struct{}{}:
			default:
			}
			return true
		}))
	})
	<-asked
	r.kill()
}

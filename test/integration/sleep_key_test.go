package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/runsc/sleep"
)

// TestSleepKeyMissing wakes a pod whose snapshot is encrypted while its key is missing, under an agent that has not
// read it yet: the pod sleeps on, "diapause top" and who waits for it are told why, and it wakes once the key is back.
func TestSleepKeyMissing(t *testing.T) {
	at := newPlace(t)
	keys := keyFile(filepath.Join(t.TempDir(), "default"))
	right := newKey()
	keys.write(t, right)
	flags := append(at.flags(), "--encryption-keys="+filepath.Dir(string(keys)))
	n := start(t, flags...)
	p := n.sleeper("locked", "--mib=8")
	before := n.serving(p)
	n.sleep("", p)
	keys.write(t, newKey())
	n.restartAgent(flags...)
	answered := n.asks(p)
	n.eventually("top says why it sleeps on", func() error {
		if top := n.mustCLI("top"); !strings.Contains(top, "encryption key missing") {
			return fmt.Errorf("it says %s", top)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	err := n.containerd().OrderSleep(ctx, p.ID, sleep.Order{Verb: sleep.Wake, Cause: "request"})
	n.refusedWith([]string{"waits for its snapshot", "encryption key missing"}, "a wake that has 3 seconds", err)
	if strings.Contains(n.agent.Log(), "urpc") {
		t.Error("a restore was tried that could not succeed")
	}
	keys.write(t, right)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	n.alive(p, before)
	n.logsOn(p)
	n.settled(at)
}

// Package identity tells a restored process from a started one: a boot id drawn at start and a
// counter that ticks on live in memory alone.
package identity

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// tick is how often the counter grows by one.
const tick = 10 * time.Millisecond

// Identity is one life of the workload.
type Identity struct {
	boot    string
	counter atomic.Int64
}

// State is what a life looks like from outside.
type State struct {
	Boot    string            `json:"boot"`    // random, drawn at start
	Counter int64             `json:"counter"` // grows by one every 10 ms
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Env     map[string]string `json:"env"` // PATH and all that begins with WORKLOAD_
	Now     time.Time         `json:"now"`
}

// New draws a boot id.
func New() *Identity { return &Identity{boot: rand.Text()} }

// Run counts until ctx ends.
func (i *Identity) Run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			i.counter.Add(1)
		}
	}
}

// State returns the state of this moment.
func (i *Identity) State() State {
	host, _ := os.Hostname() // empty when the kernel does not say
	return State{i.boot, i.counter.Load(), host, os.Getpid(), sample(os.Environ()), time.Now()}
}

func sample(environ []string) map[string]string {
	env := map[string]string{}
	for _, e := range environ {
		if k, v, _ := strings.Cut(e, "="); k == "PATH" || strings.HasPrefix(k, "WORKLOAD_") {
			env[k] = v
		}
	}
	return env
}

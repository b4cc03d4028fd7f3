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

	"diapause.dev/test/workload/answers"
)

// Identity is one life of the workload.
type Identity struct {
	boot    string
	counter atomic.Int64
}

// New draws a boot id.
func New() *Identity { return &Identity{boot: rand.Text()} }

// Run counts until ctx ends.
func (i *Identity) Run(ctx context.Context) {
	t := time.NewTicker(answers.Tick)
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
func (i *Identity) State() answers.State {
	host, _ := os.Hostname() // empty when the kernel does not say
	return answers.State{
		Boot: i.boot, Counter: i.counter.Load(), Host: host, PID: os.Getpid(), Env: sample(os.Environ()),
		Now: time.Now(),
	}
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

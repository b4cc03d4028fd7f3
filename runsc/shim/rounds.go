package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/log"

	"diapause.dev/runsc/sleep"
)

// rounds orders what a container is told about falling asleep and waking. Each order comes on a connection of its
// own, and whoever gave one may have ceased to wait for it: so they are counted, see [sleep.Order]. The zero value has
// heard of none. It may be used concurrently.
type rounds struct {
	mu     sync.Mutex
	hushed uint64 // the newest round in which the container was to fall asleep
	upped  uint64 // the newest round that is over
}

// hush calls f, unless the round is over.
func (r *rounds) hush(round uint64, f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if round != 0 && round <= r.upped {
		return fmt.Errorf("%w: that was called off before", sleep.ErrUnfit)
	}
	r.hushed = max(r.hushed, round)
	f()
	return nil
}

// up notes that a round is over. It is false if a newer one has begun.
func (r *rounds) up(round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upped = max(r.upped, round)
	return round == 0 || round >= r.hushed
}

// Limits of telling the pod's containers that they are awake.
const (
	upWait  = 2 * time.Second  // what whoever wakes the pod waits for them
	upLimit = 10 * time.Second // for one answer
	upPause = time.Second      // before asking again
	upTries = 60               // a shim that answers none of them is not coming back
)

// rise lets requests through to all containers of the pod again, after a wake or a fall that has failed. A shim that is
// slow or stopped does not keep the pod from running on: it is asked on in the background until it answers.
func (z *sleeper) rise(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	var telling sync.WaitGroup
	round := z.round.Load()
	for _, id := range append(slices.Clone(z.others), z.c.bundle.id) {
		telling.Go(func() { z.raise(ctx, id, round) })
	}
	told := make(chan struct{})
	go func() { telling.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(upWait):
		log.L.Warnf("not all containers of sandbox %s have heard yet that it is awake", z.c.bundle.id)
	}
}

// raise lets requests through to one container again. It ends early if the pod is to fall asleep again: that asks
// everybody anew.
func (z *sleeper) raise(ctx context.Context, id string, round uint64) {
	for range upTries {
		limited, cancel := context.WithTimeout(ctx, upLimit)
		err := z.send(limited, id, sleep.Order{Verb: sleep.Up, Round: round})
		cancel()
		if err == nil || errors.Is(err, os.ErrNotExist) || z.round.Load() != round {
			return
		}
		z.warn(err, "let requests through to container "+id)
		time.Sleep(upPause)
	}
}

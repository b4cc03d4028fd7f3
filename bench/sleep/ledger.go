package main

import (
	"errors"
	"fmt"
	"sync"

	"diapause.dev/test/workload/answers"
)

// errWrong is the kind of error for an answer that only a pod that has lost or mixed up its state gives.
var errWrong = errors.New("wrong answer")

// ledger holds what a pod has answered. A pod counts its requests: of a pod that goes on where it was, no number comes
// twice, and none that is not above all those that were answered before it was asked. Its methods may be called
// concurrently.
type ledger struct {
	mu   sync.Mutex
	boot string
	seen map[int64]bool
	top  int64
}

// floor returns the greatest number that was answered so far.
func (l *ledger) floor() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.top
}

// enter notes an answer to a request that was sent when floor was the greatest number, and checks it.
func (l *ledger) enter(floor int64, c answers.Count) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boot == "" {
		l.boot, l.seen = c.Boot, make(map[int64]bool)
	}
	switch {
	case c.Boot != l.boot:
		return fmt.Errorf("%w: it comes from life %q, not %q", errWrong, c.Boot, l.boot)
	case l.seen[c.Count]:
		return fmt.Errorf("%w: number %d came before", errWrong, c.Count)
	case c.Count <= floor:
		return fmt.Errorf("%w: number %d, and %d was answered before the request", errWrong, c.Count, floor)
	}
	l.seen[c.Count], l.top = true, max(l.top, c.Count)
	return nil
}

// whole returns an error unless the pod has counted all requests that were answered, and nothing else.
func (l *ledger) whole() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int64(len(l.seen)); n != l.top {
		return fmt.Errorf("%w: it counted %d requests and answered %d", errWrong, l.top, n)
	}
	return nil
}

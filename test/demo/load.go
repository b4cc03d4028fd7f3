package main

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/test/workload/answers"
)

// load sends requests, one after the other, all the time.
type load struct {
	cancel context.CancelFunc
	done   chan loadReport
}

// loadReport is how the requests went.
type loadReport struct {
	sent, failed int
	first        error // of those that failed
	longest      time.Duration
	answers      []answer
}

// answer is what the workload said between two instants.
type answer struct {
	asked, got time.Time
	state      answers.State
}

// margin is more than the workload's clock and this machine's can be apart.
const margin = 20 * time.Millisecond

// around returns the last answer that came before a gap and the first that was asked for after it.
func (r loadReport) around(g answers.Gap) (before, after answers.State, err error) {
	for _, a := range r.answers {
		if a.got.Before(g.Start().Add(-margin)) {
			before = a.state
		}
		if a.asked.After(g.End().Add(margin)) {
			after = a.state
			break
		}
	}
	if before.Boot == "" || after.Boot == "" {
		return before, after, fmt.Errorf("no answer before or none after the pause of %.1f ms: %d requests were sent", g.MS,
			r.sent)
	}
	return before, after, nil
}

// breath is the time between an answer and the next request.
const breath = 2 * time.Millisecond

func startLoad(ctx context.Context, e endpoint) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, done: make(chan loadReport, 1)}
	go func() { l.done <- send(ctx, e) }()
	return l
}

// stop ends the sending and waits for it.
func (l *load) stop() loadReport {
	l.cancel()
	return <-l.done
}

func send(ctx context.Context, e endpoint) (r loadReport) {
	for sleep(ctx, breath) {
		begin := time.Now()
		var s answers.State
		err := e.get(ctx, "/state", &s)
		if ctx.Err() != nil {
			break // the last one was called off
		}
		r.sent++
		r.longest = max(r.longest, time.Since(begin))
		if err != nil {
			if r.failed++; r.failed == 1 {
				r.first = err
			}
			continue
		}
		r.answers = append(r.answers, answer{begin, time.Now(), s})
	}
	return r
}

// longest returns the longest gap that begins between two instants of this machine's clock, which
// the workload shares.
func longest(gaps []answers.Gap, begin, end time.Time) (answers.Gap, error) {
	var found answers.Gap
	for _, g := range gaps {
		if g.StartUnixNS >= begin.UnixNano() && g.StartUnixNS < end.UnixNano() && g.MS > found.MS {
			found = g
		}
	}
	if found.MS == 0 {
		return found, fmt.Errorf("the application saw no pause in the %v of the checkpoint", end.Sub(begin))
	}
	return found, nil
}

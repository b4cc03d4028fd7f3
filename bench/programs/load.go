package programs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// thinkTime is how long a client waits between an answer and its next request.
	thinkTime = time.Millisecond
	// answerTime bounds the wait for one answer.
	answerTime = 30 * time.Second
	// usualTime is how long before a checkpoint the usual time between two answers is looked at.
	usualTime = time.Second
)

// Load is what a client's streams do to a program until Stop.
type Load struct {
	streams [Streams]stream
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// stream is one connection, and when its writes were acknowledged.
type stream struct {
	sent atomic.Int64 // last number that was sent, or is being sent

	mu      sync.Mutex
	base    int64       // number of writes that were acknowledged before those in answers
	answers []time.Time // when writes base+1, base+2, … were acknowledged
	err     error
}

// StartLoad connects the streams and begins.
func StartLoad(ctx context.Context, p *Program, ip string) (*Load, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel}
	for i := range l.streams {
		s, err := p.Dial(ctx, ip)
		if err != nil {
			return nil, errors.Join(err, l.Stop())
		}
		l.wg.Go(func() {
			err := l.streams[i].run(ctx, s, i)
			l.streams[i].end(errors.Join(err, s.Close()))
		})
	}
	return l, nil
}

// Stop ends the load, and returns the first error of any request.
func (l *Load) Stop() error {
	l.cancel()
	l.wg.Wait()
	return l.Err()
}

// Err returns the errors of the streams that have failed.
func (l *Load) Err() error {
	var errs []error
	for i := range l.streams {
		l.streams[i].mu.Lock()
		if err := l.streams[i].err; err != nil {
			errs = append(errs, fmt.Errorf("load on stream %d: %w", i, err))
		}
		l.streams[i].mu.Unlock()
	}
	return errors.Join(errs...)
}

// run writes until ctx ends. A request that is under way then is finished.
func (s *stream) run(ctx context.Context, session Session, number int) error {
	for ctx.Err() == nil {
		if err := s.write(context.WithoutCancel(ctx), session, number); err != nil {
			return err
		}
		time.Sleep(thinkTime)
	}
	return nil
}

func (s *stream) write(ctx context.Context, session Session, number int) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	n := s.sent.Add(1)
	if err := session.Write(ctx, number, n); err != nil {
		return fmt.Errorf("write %d: %w", n, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, time.Now())
	return nil
}

func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// acknowledged returns how many writes had been acknowledged at a time.
func (s *stream) acknowledged(at time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.answers, at, time.Time.Compare)
	return s.base + int64(i)
}

// Bounds returns the least and the most that a snapshot may have of each stream which was made between two times: what
// had been acknowledged at the first, and what could have been sent at the second. The second is in the past.
func (l *Load) Bounds(begin, end time.Time) (least, most [Streams]int64) {
	for i := range l.streams {
		least[i] = l.streams[i].acknowledged(begin)
		most[i] = l.streams[i].acknowledged(end) + 1
	}
	return least, most
}

// Sent returns the last number that each stream has sent. After Stop, all of them are acknowledged if Err is nil.
func (l *Load) Sent() (n [Streams]int64) {
	for i := range l.streams {
		n[i] = l.streams[i].sent.Load()
	}
	return n
}

// Settle returns once each stream has had an answer after a time, or an error if one has failed.
func (l *Load) Settle(ctx context.Context, after time.Time) error {
	for {
		if err := l.Err(); err != nil {
			return err
		}
		if !slices.ContainsFunc(l.pending(), func(last time.Time) bool { return !last.After(after) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for an answer of each stream: %w", ctx.Err())
		case <-time.After(thinkTime):
		}
	}
}

// pending returns when each stream had its last answer.
func (l *Load) pending() (last []time.Time) {
	for i := range l.streams {
		s := &l.streams[i]
		s.mu.Lock()
		var t time.Time
		if len(s.answers) > 0 {
			t = s.answers[len(s.answers)-1]
		}
		s.mu.Unlock()
		last = append(last, t)
	}
	return last
}

// Pause returns for how long the client was kept waiting by what happened between two times: of the stream for which
// it was longest, the longest time between two answers that overlaps them, without the usual time between two answers.
// Before is the same for as long a time right before begin. Pause forgets the answers before begin.
func (l *Load) Pause(begin, end time.Time) (took, before time.Duration) {
	for i := range l.streams {
		t, b := l.streams[i].pause(begin, end)
		took, before = max(took, t), max(before, b)
	}
	return took, before
}

func (s *stream) pause(begin, end time.Time) (took, before time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.answers, begin, time.Time.Compare)
	common := usual(s.answers, begin)
	took = longest(s.answers, begin, end) - common
	before = longest(s.answers[:i], begin.Add(-end.Sub(begin)), begin) - common
	s.base += int64(i)
	s.answers = slices.Clone(s.answers[i:])
	return max(took, 0), max(before, 0)
}

// longest returns the longest time between two answers, one after the other, that overlaps begin to end.
func longest(answers []time.Time, begin, end time.Time) (most time.Duration) {
	for i := 1; i < len(answers); i++ {
		if answers[i-1].Before(end) && answers[i].After(begin) {
			most = max(most, answers[i].Sub(answers[i-1]))
		}
	}
	return most
}

// usual returns the median time between two answers in the usualTime before begin; 0 if there were none.
func usual(answers []time.Time, begin time.Time) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(answers); i++ {
		if answers[i].Before(begin) && answers[i-1].After(begin.Add(-usualTime)) {
			gaps = append(gaps, answers[i].Sub(answers[i-1]))
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

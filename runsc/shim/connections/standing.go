package connections

import (
	"sync"
)

// Containerd asks each container for its statistics every second, and one that sleeps always answers the same. Most of
// what an answer costs then is the code of ttrpc and protobuf, which a second later is in no cache of the processor any
// more. So while the process saves power, the connection itself repeats the answer, before ttrpc sees the question.

// standingAnswers are the answers to questions whose answers stay the same for as long as the process saves power. The
// zero value has none, and takes none. Its methods may be called concurrently.
type standingAnswers struct {
	mu     sync.Mutex
	period int               // counts the times that the process has saved power
	all    map[string][]byte // whole messages, by what appendQuestion returns; nil: the process does not save power
}

// maxStanding bounds how many answers are kept. A shim serves the few containers of a pod.
const maxStanding = 64

// begin lets answers be kept. The process saves power.
func (s *standingAnswers) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.period++
	s.all = make(map[string][]byte)
}

// end forgets all answers.
func (s *standingAnswers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// open reports whether answers are kept: the process saves power.
func (s *standingAnswers) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all != nil
}

// to returns the answer to a question, or nil. It must not be changed. An answer that is found otherwise may be kept if
// period is not 0.
func (s *standingAnswers) to(question []byte) (answer []byte, period int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		return nil, 0
	}
	return s.all[string(question)], s.period
}

// keep keeps an answer, unless the process has been up since the question.
func (s *standingAnswers) keep(question string, answer []byte, period int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || s.period != period {
		return
	}
	if len(s.all) == maxStanding {
		clear(s.all)
	}
	s.all[question] = answer
}

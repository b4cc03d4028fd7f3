package record

import (
	"sync"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// Job is a checkpoint that was requested in the cluster and is under way in this process.
type Job struct {
	Asker     Asker
	Pod       snapshot.PodRef
	Plan      *rules.Plan
	Requester Requester
	// Closed is set if nobody waits for an answer: it was seen, or the object that asked is gone. Once the job is added,
	// it is guarded by Jobs.mu.
	Closed bool

	state State // guarded by Jobs.mu
}

// State is how far a job has come.
type State struct {
	Key      snapshot.Key // zero until the pod's turn has come
	Spooled  bool
	Ended    bool
	Answered bool  // although the cache may not have the answer yet
	Err      error // why it ended without a snapshot, or what failed after the snapshot
}

// Capturing reports whether the job's pod is not free for another checkpoint yet.
func (s State) Capturing() bool { return !s.Spooled && !s.Ended }

// Requester identifies the object that asked for a checkpoint, and that gets the answer.
type Requester struct {
	Trigger   string // its name; empty: the pod's annotation asks
	Pod       string
	Namespace string
}

// Jobs are the jobs whose answer has not been seen yet. Its methods may be called concurrently.
type Jobs struct {
	mu  sync.Mutex
	all map[Asker]*Job
}

func newJobs() *Jobs { return &Jobs{all: make(map[Asker]*Job)} }

// Add adds a job. It returns false if its asker has one already, or if its pod is being captured for another
// job.
func (s *Jobs) Add(j *Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[j.Asker] != nil || s.capturing(j.Pod.UID) != nil {
		return false
	}
	s.all[j.Asker] = j
	return true
}

// Named records the key of a job's snapshot.
func (s *Jobs) Named(j *Job, k snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.state.Key = k
}

// capturing returns the job for which a pod is being captured. The caller holds s.mu.
func (s *Jobs) capturing(podUID string) *Job {
	for _, j := range s.all {
		if j.Pod.UID == podUID && j.state.Capturing() {
			return j
		}
	}
	return nil
}

// Busy reports whether a pod is being captured.
func (s *Jobs) Busy(podUID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capturing(podUID) != nil
}

// Done reports whether an asker's checkpoint has spooled its snapshot, or has ended without one. The pod is then free
// for the next checkpoint, although this one may not be answered yet.
func (s *Jobs) Done(a Asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.all[a]
	return j != nil && !j.state.Capturing()
}

// Plan returns the plan of the job whose turn it is for a pod, or nil. If it is nil, the pod is captured, if at
// all, for something else, even if a job waits for its turn.
func (s *Jobs) Plan(podUID string) *rules.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.capturing(podUID); j != nil && j.state.Key.Name != "" {
		return j.Plan
	}
	return nil
}

// Of returns the state of an asker's job.
func (s *Jobs) Of(a Asker) (st State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.all[a]
	if j == nil {
		return State{}, false
	}
	return j.state, true
}

// State returns the state of a snapshot's job.
func (s *Jobs) State(k snapshot.Key) (st State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.keyed(k)
	if j == nil {
		return State{}, false
	}
	return j.state, true
}

// Requester returns the object that asked for a snapshot that a job makes.
func (s *Jobs) Requester(k snapshot.Key) (d Requester, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.keyed(k)
	if j == nil {
		return Requester{}, false
	}
	return j.Requester, true
}

// keyed returns a snapshot's job, or nil. The caller holds s.mu.
func (s *Jobs) keyed(k snapshot.Key) *Job {
	for _, j := range s.all {
		if j.state.Key == k {
			return j
		}
	}
	return nil
}

// Answered records that an asker has been answered.
func (s *Jobs) Answered(a Asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.all[a]; j != nil {
		j.state.Answered = true
	}
}

// Close forgets an asker's job, whose answer was seen, at the end of its checkpoint. It reports whether there is no
// job any more.
func (s *Jobs) Close(a Asker) (none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.all[a]; j != nil {
		j.Closed = true
		s.forget(j)
	}
	return s.all[a] == nil
}

// Gone forgets the jobs of an object that no longer asks, at the end of their checkpoints. It keeps the job of
// the asker except.
func (s *Jobs) Gone(d Requester, except Asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		if j.Requester == d && j.Asker != except {
			j.Closed = true
			s.forget(j)
		}
	}
}

// End records the end of a job's checkpoint, and returns the snapshot's key.
func (s *Jobs) End(j *Job, err error) snapshot.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.state.Ended, j.state.Err, j.state.Spooled = true, err, j.state.Spooled || err == nil
	s.forget(j)
	return j.state.Key
}

// Captured records that a snapshot is restorable on this node. It returns its job, or nil if there is none or if
// this was known already.
func (s *Jobs) Captured(k snapshot.Key) *Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.keyed(k)
	if j == nil || j.state.Spooled {
		return nil
	}
	j.state.Spooled = true
	return j
}

// forget removes a job that is closed and has ended. The caller holds s.mu.
func (s *Jobs) forget(j *Job) {
	if j.Closed && j.state.Ended {
		delete(s.all, j.Asker)
	}
}

package request

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// job is a checkpoint that was requested in the cluster and is under way in this process.
type job struct {
	asker     asker
	pod       snapshot.PodRef
	plan      *rules.Plan
	requester requester

	// Guarded by jobs.mu.
	key      snapshot.Key // zero until the pod's turn has come
	spooled  bool
	ended    bool
	answered bool  // although the cache may not have the answer yet
	closed   bool  // the answer was seen, or the object that asked is gone
	err      error // why it ended without a snapshot, or what failed after the snapshot
}

// requester identifies the object that asked for a checkpoint, and that gets the answer.
type requester struct {
	trigger string // its name; empty: the pod's annotation asks
	pod     string
	in      string // namespace
}

// kick requeues the object.
func (d requester) kick(rs *Requests) {
	if d.trigger != "" {
		rs.triggers.Kick(client.ObjectKey{Namespace: d.in, Name: d.trigger})
		return
	}
	rs.pods.Kick(client.ObjectKey{Namespace: d.in, Name: d.pod})
}

// jobs are the jobs whose answer has not been seen yet. Its methods may be called concurrently.
type jobs struct {
	mu  sync.Mutex
	all map[asker]*job
}

func newJobs() *jobs { return &jobs{all: make(map[asker]*job)} }

// add adds a job. It returns false if its asker has one already, or if its pod is being captured for another
// job.
func (s *jobs) add(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[j.asker] != nil || s.capturing(j.pod.UID) != nil {
		return false
	}
	s.all[j.asker] = j
	return true
}

// named records the key of a job's snapshot.
func (s *jobs) named(j *job, k snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.key = k
}

// capturing returns the job for which a pod is being captured. The caller holds s.mu.
func (s *jobs) capturing(podUID string) *job {
	for _, j := range s.all {
		if j.pod.UID == podUID && !j.spooled && !j.ended {
			return j
		}
	}
	return nil
}

// busy reports whether a pod is being captured.
func (s *jobs) busy(podUID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capturing(podUID) != nil
}

// done reports whether an asker's checkpoint has spooled its snapshot, or has ended without one. The pod is then free
// for the next checkpoint, although this one may not be answered yet.
func (s *jobs) done(a asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.all[a]
	return j != nil && (j.spooled || j.ended)
}

// plan returns the plan of the job whose turn it is for a pod, or nil. If it is nil, the pod is captured, if at
// all, for something else, even if a job waits for its turn.
func (s *jobs) plan(podUID string) *rules.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.capturing(podUID); j != nil && j.key.Name != "" {
		return j.plan
	}
	return nil
}

// of returns a copy of an asker's job.
func (s *jobs) of(a asker) (j job, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[a]
	if p == nil {
		return job{}, false
	}
	return *p, true
}

// state returns a copy of a snapshot's job.
func (s *jobs) state(k snapshot.Key) (j job, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keyed(k)
	if p == nil {
		return job{}, false
	}
	return *p, true
}

// keyed returns a snapshot's job, or nil. The caller holds s.mu.
func (s *jobs) keyed(k snapshot.Key) *job {
	for _, j := range s.all {
		if j.key == k {
			return j
		}
	}
	return nil
}

// answered records that an asker has been answered.
func (s *jobs) answered(a asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.all[a]; j != nil {
		j.answered = true
	}
}

// close forgets an asker's job, whose answer was seen, at the end of its checkpoint. It reports whether there is no
// job any more.
func (s *jobs) close(a asker) (none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.all[a]; j != nil {
		j.closed = true
		s.forget(j)
	}
	return s.all[a] == nil
}

// gone forgets the jobs of an object that no longer asks, at the end of their checkpoints. It keeps the job of
// the asker except.
func (s *jobs) gone(d requester, except asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		if j.requester == d && j.asker != except {
			j.closed = true
			s.forget(j)
		}
	}
}

// end records the end of a job's checkpoint, and returns the snapshot's key.
func (s *jobs) end(j *job, err error) snapshot.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.ended, j.err, j.spooled = true, err, j.spooled || err == nil
	s.forget(j)
	return j.key
}

// captured records that a snapshot is restorable on this node. It returns its job, or nil if there is none or if
// this was known already.
func (s *jobs) captured(k snapshot.Key) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.keyed(k)
	if j == nil || j.spooled {
		return nil
	}
	j.spooled = true
	return j
}

// forget removes a job that is closed and has ended. The caller holds s.mu.
func (s *jobs) forget(j *job) {
	if j.closed && j.ended {
		delete(s.all, j.asker)
	}
}

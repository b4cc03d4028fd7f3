package record

import (
	"log/slog"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	"diapause.dev/api/snapshot"
)

// Records are what a node knows of the checkpoints that were requested in its cluster. Its methods may be called
// concurrently.
type Records struct {
	Jobs     *Jobs
	Reported *Reported
	Ledger   *Ledger
}

// Open opens the ledger in a directory. There are no jobs yet, and nothing was reported.
func Open(dir string, log *slog.Logger) (*Records, error) {
	l, err := openLedger(dir, log)
	if err != nil {
		return nil, err
	}
	return &Records{Jobs: newJobs(), Reported: newReported(), Ledger: l}, nil
}

// Knows reports whether this node still has work to do for a snapshot.
func (r *Records) Knows(k snapshot.Key) bool {
	_, working := r.Jobs.State(k)
	_, reported := r.Reported.Get(k)
	_, entered := r.Ledger.Get(k)
	return working || reported || entered
}

// Name gives a job's snapshot its name, once it is the job's turn, and records in the ledger what the snapshot
// is for. A snapshot that got a name before a crash keeps it.
func (r *Records) Name(j *Job, clock *names.Clock) (string, error) {
	k := r.KeyOf(j.Asker)
	if k.Name == "" {
		k = snapshot.Key{Namespace: j.Asker.namespace, Name: clock.Name(j.Asker.tag)}
	}
	if err := r.Ledger.Put(Entry{Key: k, Pod: j.Pod, Plan: j.Plan, Trigger: j.Requester.Trigger}); err != nil {
		return "", err
	}
	r.Jobs.Named(j, k)
	return k.Name, nil
}

// Over reports whether a pod is free for the next checkpoint although the asker of this one may not be answered yet:
// its snapshot is spooled, or it has failed, in this agent or in an earlier one.
func (r *Records) Over(a Asker) bool {
	if _, working := r.Jobs.Of(a); working {
		return r.Jobs.Done(a)
	}
	k := r.KeyOf(a)
	if k.Name == "" {
		return false
	}
	if q, known := r.Reported.Get(k); known {
		return Spooled(q) || q.Stage == journal.StageFailed
	}
	e, _ := r.Ledger.Get(k)
	return e.Published != ""
}

// KeyOf returns the key of the snapshot that was begun for an asker. It is zero if this node knows of none.
func (r *Records) KeyOf(a Asker) snapshot.Key {
	if j, ok := r.Jobs.Of(a); ok && j.Key.Name != "" {
		return j.Key
	}
	for _, m := range a.marks() {
		if k, ok := r.Reported.find(m); ok {
			return k
		}
		if k, ok := r.Ledger.find(m); ok {
			return k
		}
	}
	return snapshot.Key{}
}

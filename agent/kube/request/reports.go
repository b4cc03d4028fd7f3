package request

import (
	"context"
	"log/slog"
	"path/filepath"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/api/snapshot"
)

// Reports are what the agent reports of its checkpoints. They are made before the agent's parts, which write into them;
// Requests read them. Its methods may be called concurrently.
type Reports struct {
	records *record.Records
	work    *control.Background // what Requests begin
	waiters *waiters
}

// ReportsConfig is what Reports work with.
type ReportsConfig struct {
	Objects  *objects.Objects
	Names    *names.Clock      // learns the names of earlier snapshots
	StateDir string            // for the ledger; must survive a reboot
	Earlier  []journal.Request // the requests in the agent's journal, oldest first
	Life     context.Context   // checkpoints that are requested in the cluster end with it
	Logger   *slog.Logger
}

// OpenReports opens the ledger, and takes over the requests in the agent's journal. It sends nothing to the API server.
func OpenReports(c ReportsConfig) (*Reports, error) {
	records, err := record.Open(filepath.Join(c.StateDir, "kube"), c.Logger)
	if err != nil {
		return nil, err
	}
	work := control.NewBackground(c.Life)
	w := &waiters{objects: c.Objects, records: records, work: work, log: c.Logger}
	records.Reported.Load(c.Earlier)
	for _, q := range c.Earlier {
		c.Names.Saw(q.Key.Name, q.Created)
	}
	for _, k := range append(records.Reported.Keys(), records.Ledger.Keys()...) {
		w.snapshots.Kick(objects.Named(k))
	}
	return &Reports{records: records, work: work, waiters: w}, nil
}

// Changed notes a step of a request. It must be called with each step of every request, in order. It does not block.
func (r *Reports) Changed(q journal.Request) {
	r.records.Reported.Put(q)
	r.waiters.progressed(q.Key)
	if record.Spooled(q) {
		r.waiters.captured(q.Key)
	}
}

// SleepChanged looks again at the PodSnapshots of a pod that has fallen asleep or woken.
func (r *Reports) SleepChanged(pod snapshot.PodRef) {
	for _, k := range r.records.Ledger.Of(pod.UID) {
		r.waiters.snapshots.Kick(objects.Named(k))
	}
}

// Begin has the requests so far count as reported now: the controllers start, and can make their PodSnapshots.
func (r *Reports) Begin() { r.records.Reported.Begin() }

// Knows reports whether this node still has work to do for a snapshot.
func (r *Reports) Knows(k snapshot.Key) bool { return r.records.Knows(k) }

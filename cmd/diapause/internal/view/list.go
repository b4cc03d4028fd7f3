package view

import (
	"fmt"
	"io"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/internal/table"
)

// List is the answer to "ls".
type List struct {
	Snapshots []Snapshot `json:"snapshots"`
	// Damaged are snapshots whose manifest cannot be read, as "namespace/name: reason".
	Damaged []string `json:"damaged"`
	// Unreachable says which stores could not be listed, and why: there may be more snapshots.
	Unreachable []string `json:"unreachable"`
}

// NewList converts the agent's list.
func NewList(r *localv1.ListResponse) List {
	l := List{Snapshots: []Snapshot{}, Damaged: listOf(r.GetDamaged()), Unreachable: listOf(r.GetUnreachable())}
	for _, s := range r.GetSnapshots() {
		l.Snapshots = append(l.Snapshots, NewSnapshot(s))
	}
	return l
}

// Table writes a row for each snapshot. The caller reports what could not be read.
func (l List) Table(w io.Writer) error {
	r := table.New(w, "NAMESPACE", "SNAPSHOT", "CREATED", "POD", "SCOPE", "PURPOSE", "RAW", "STORED", "RATIO", "WHERE")
	for _, s := range l.Snapshots {
		r.Add(s.Namespace, s.Name, when(s.Created), orDash(s.OriginPod), s.Scope, s.Purpose,
			progress.Size(s.RawBytes), progress.Size(s.StoredBytes), fmt.Sprintf("%.2f", s.Ratio), s.where())
	}
	return r.Flush()
}

// Checkpoint is the result of a checkpoint. Error says what failed after the snapshot was made.
type Checkpoint struct {
	Request  string   `json:"request"`
	Snapshot Snapshot `json:"snapshot"`
	Failure
}

// Table writes the new snapshot's row.
func (c Checkpoint) Table(w io.Writer) error {
	return List{Snapshots: []Snapshot{c.Snapshot}}.Table(w)
}

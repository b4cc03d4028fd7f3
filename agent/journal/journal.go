// Package journal keeps what a node must remember of its checkpoint requests, so that the next agent can continue them
// after a crash.
package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
)

// Stage is how far a checkpoint has come. StagePaused is journaled before its step, the other stages after theirs.
type Stage string

// Stages of a checkpoint, in order. Paused occurs only when the sandbox is to be stopped.
const (
	StageAccepted   Stage = "accepted"   // nothing was done to the sandbox
	StagePaused     Stage = "paused"     // the agent may have paused the sandbox
	StageSpooled    Stage = "spooled"    // the snapshot is restorable on this node
	StageReplicated Stage = "replicated" // the snapshot is restorable anywhere; the request has ended
	StageFailed     Stage = "failed"     // the request has ended; Error says why
)

// Record is a checkpoint request as the journal keeps it.
type Record struct {
	ID     string         `json:"id"`
	UID    string         `json:"uid"` // of the snapshot
	Key    snapshot.Key   `json:"key"`
	Scope  snapshot.Scope `json:"scope,omitempty"`
	Pod    string         `json:"pod"` // namespace/name
	PodUID string         `json:"podUID,omitempty"`
	// NamespaceUID is that of the pod's namespace; empty: not known.
	NamespaceUID string `json:"namespaceUID,omitempty"`

	Store     string `json:"store,omitempty"` // location; empty: the agent's own
	SandboxID string `json:"sandboxID"`
	Stop      bool   `json:"stop,omitempty"`
	Sleep     bool   `json:"sleep,omitempty"`     // the pod is to sleep once the snapshot is spooled
	Completed bool   `json:"completed,omitempty"` // its containers then report exit status 0
	CopyOf    string `json:"copyOf,omitempty"`    // UID of the snapshot on which the pod sleeps; empty: it is awake
	Ending    bool   `json:"ending,omitempty"`    // or that of SIGTERM: its pod was being ended
	Passing   bool   `json:"passing,omitempty"`   // the pod's next sleep removes the snapshot
	// Purpose is empty in records of earlier agents.
	Purpose     snapshot.Purpose `json:"purpose,omitempty"`
	Inheritable bool             `json:"inheritable,omitempty"` // see snapshot.Meta
	Stopped     bool             `json:"stopped,omitempty"`     // the sandbox was killed after the snapshot was spooled
	RunsOn      string           `json:"runsOn,omitempty"`      // why the sandbox was not stopped, and will not be
	Stored      int64            `json:"stored,omitempty"`      // bytes that it has added to the spool; 0: not known
	Warning     string           `json:"warning,omitempty"`     // what a restore may not notice
	Stage       Stage            `json:"stage"`
	Error       string           `json:"error,omitempty"`
	Created     time.Time        `json:"created"`
	Timeline    []snapshot.Stage `json:"timeline,omitempty"`
}

// Request is a checkpoint as the journal knows it.
type Request struct {
	ID          string
	SnapshotUID string
	Key         snapshot.Key
	Scope       snapshot.Scope
	Purpose     snapshot.Purpose
	Inheritable bool // see snapshot.Meta
	Pod         snapshot.PodRef
	// NamespaceUID is that of the pod's namespace; empty: not known.
	NamespaceUID string
	SandboxID    string
	Stage        Stage
	Error        string // why it failed
	// Stop: the sandbox is to be stopped once its snapshot is spooled. Stopped says that it has been. RunsOn says why it
	// will not be. While neither is set, the stop is still to come.
	Stop    bool
	Stopped bool
	RunsOn  string
	// Warning says what a restore of the snapshot may not notice. Empty: nothing.
	Warning string
	// Waiting says why a spooled snapshot is not in its store yet, after a failed attempt. A change is reported only if
	// the kind of reason changes. Empty: no attempt has failed since the agent started.
	Waiting string
	Store   string // location; empty: the agent's own
	Created time.Time
}

// Journal keeps records on disk, one file each, and in memory, so that readers need no file. It remembers all requests
// that have not ended and the newest of the others. Its methods may be called concurrently; a record belongs to one
// goroutine at a time.
type Journal struct {
	dir string
	log *slog.Logger
	// lost are the requests whose records could not be read when the journal was opened.
	lost []string

	mu  sync.Mutex
	all map[string]*Record // as they are on disk: replaced as a whole, never changed
}

// keptRecords is how many ended requests the journal remembers.
const keptRecords = 1000

// Open reads the journal in a directory, and creates the directory if it does not exist. If a record cannot be read,
// Open logs it and gives up its request. Put replaces files whole, so such a file was damaged later. A file that is not
// a record is set aside; the newest keptUnreadable of those are kept.
func Open(dir string, log *slog.Logger) (*Journal, error) {
	j := &Journal{dir: dir, log: log, all: make(map[string]*Record)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := durable.Clean(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := j.load(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.prune("")
	j.pruneUnreadable()
	return j, nil
}

// load reads the records of an earlier agent. Nothing else uses j yet.
func (j *Journal) load() error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		r, err := readRecord(j.path(id))
		if err == nil && r.ID != id {
			err = fmt.Errorf("%w: it is that of request %.40q", errNoRecord, r.ID)
		}
		if err != nil {
			j.lose(id, err)
			continue
		}
		j.all[id] = r
	}
	return nil
}

// recordFormat is the format of records that this agent writes. Records of earlier agents have no number, and are read
// as format 1. Fields may be added without a new format if their zero value means what was true before.
const recordFormat = 1

func readRecord(path string) (*Record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoRecord, err)
	}
	if version.Format > recordFormat {
		return nil, fmt.Errorf("format %d: a newer agent has written it", version.Format)
	}
	r := new(Record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoRecord, err)
	}
	return r, nil
}

// Lost returns the requests whose records could not be read when the journal was opened. Callers must not change it.
func (j *Journal) Lost() []string { return j.lost }

func (j *Journal) path(id string) string { return filepath.Join(j.dir, id+".json") }

// maxText is the limit in bytes for each text of a record that says what went wrong.
const maxText = 4 << 10

// bounded returns a copy of a record, with texts that were too long cut.
func (r *Record) bounded() *Record {
	c := r.Clone()
	c.Error, c.RunsOn = cut(c.Error), cut(c.RunsOn)
	return c
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + " ..."
}

// Put makes a record durable: after it returns nil, a power failure does not lose the record. When a request ends, Put
// forgets the oldest ended requests beyond keptRecords.
func (j *Journal) Put(r *Record) error {
	r = r.bounded()
	b, err := json.MarshalIndent(struct {
		Format int `json:"format"`
		*Record
	}{recordFormat, r}, "", "  ")
	if err != nil {
		return fmt.Errorf("journal request %s: %w", r.ID, err)
	}
	if err := durable.Replace(j.path(r.ID), b); err != nil {
		return fmt.Errorf("journal request %s: %w", r.ID, err)
	}
	j.mu.Lock()
	j.all[r.ID] = r
	j.mu.Unlock()
	if r.Ended() {
		j.prune(r.ID)
	}
	return nil
}

// Get returns a copy of a record as it was last put, or nil.
func (j *Journal) Get(id string) *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.all[id]; r != nil {
		return r.Clone()
	}
	return nil
}

// Records returns all records as they were last put, oldest first.
func (j *Journal) Records() []*Record { return j.Where(func(*Record) bool { return true }) }

// Where returns the records for which keep returns true, as they were last put, oldest first. keep must not change
// them.
func (j *Journal) Where(keep func(*Record) bool) []*Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*Record
	for _, r := range j.all {
		if keep(r) {
			out = append(out, r.Clone())
		}
	}
	slices.SortFunc(out, func(a, b *Record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Drop forgets a request and removes its file durably.
func (j *Journal) Drop(id string) error {
	j.forget(id)
	if err := durable.Remove(j.path(id)); err != nil {
		return fmt.Errorf("forget request %s: %w", id, err)
	}
	return nil
}

func (j *Journal) forget(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.all, id)
}

// prune forgets the oldest ended requests beyond keptRecords, except the request but, whose end has just been written.
// A file that cannot be removed now is removed when the next agent opens the journal.
func (j *Journal) prune(but string) {
	for _, id := range j.surplus(but) {
		j.forget(id)
		if err := os.Remove(j.path(id)); err != nil {
			j.log.Warn("journal not pruned", "error", err)
		}
	}
}

func (j *Journal) surplus(but string) (ids []string) {
	ended := j.Where((*Record).Ended)
	surplus := len(ended) - keptRecords
	for _, r := range ended {
		if len(ids) < surplus && r.ID != but {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Request returns the record as a Request, the form that other packages see.
func (r *Record) Request() Request {
	namespace, name, _ := strings.Cut(r.Pod, "/")
	return Request{
		ID: r.ID, SnapshotUID: r.UID, Key: r.Key, Scope: r.Scope, Purpose: r.Purpose, Inheritable: r.Inheritable,
		Pod: snapshot.PodRef{Namespace: namespace, Name: name, UID: r.PodUID}, NamespaceUID: r.NamespaceUID,
		SandboxID: r.SandboxID,
		Stage:     r.Stage, Error: r.Error, Store: r.Store, Created: r.Created, Stop: r.Stop, Stopped: r.Stopped,
		RunsOn: r.RunsOn, Warning: r.Warning,
	}
}

// Named reports whether the snapshot has a name. It may get its name only when the sandbox's turn comes.
func (r *Record) Named() bool { return r.Key.Name != "" }

// Ended reports whether nothing more is to be done for the request.
func (r *Record) Ended() bool { return r.Stage == StageReplicated || r.Stage == StageFailed }

// Clone returns a copy that shares nothing with r.
func (r *Record) Clone() *Record {
	c := *r
	c.Timeline = slices.Clone(r.Timeline)
	return &c
}

// Timeline returns the timeline of the checkpoint that made the snapshot with this UID, if the node remembers it.
func (j *Journal) Timeline(uid string) []snapshot.Stage {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.all {
		if r.UID == uid {
			return slices.Clone(r.Timeline)
		}
	}
	return nil
}

// Timelines returns the timelines of all checkpoints that this node remembers, by the snapshot's UID.
func (j *Journal) Timelines() map[string][]snapshot.Stage {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make(map[string][]snapshot.Stage, len(j.all))
	for _, r := range j.all {
		out[r.UID] = slices.Clone(r.Timeline)
	}
	return out
}

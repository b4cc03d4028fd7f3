package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
)

// Stage is how far a checkpoint has come. A stage is in the journal before the step it names is
// taken, and a later one says that the step was.
type Stage string

// Stages of a checkpoint, in order. Paused occurs only when the sandbox is to be stopped.
const (
	StageAccepted   Stage = "accepted"   // nothing was done to the sandbox
	StagePaused     Stage = "paused"     // the agent may have paused the sandbox
	StageSpooled    Stage = "spooled"    // the snapshot is restorable on this node
	StageReplicated Stage = "replicated" // the snapshot is restorable anywhere; the request has ended
	StageFailed     Stage = "failed"     // the request has ended; Error says why
)

// record is a checkpoint request as the journal keeps it.
type record struct {
	ID        string           `json:"id"`
	UID       string           `json:"uid"` // of the snapshot
	Key       snapshot.Key     `json:"key"`
	Scope     snapshot.Scope   `json:"scope,omitempty"`
	Pod       string           `json:"pod"` // namespace/name
	PodUID    string           `json:"podUID,omitempty"`
	Store     string           `json:"store,omitempty"` // location; empty: the agent's own
	SandboxID string           `json:"sandboxID"`
	Stop      bool             `json:"stop,omitempty"`
	Completed bool             `json:"completed,omitempty"` // its containers then report exit status 0
	Stopped   bool             `json:"stopped,omitempty"`   // the sandbox was killed after the snapshot was safe
	Stage     Stage            `json:"stage"`
	Error     string           `json:"error,omitempty"`
	Created   time.Time        `json:"created"`
	Timeline  []snapshot.Stage `json:"timeline,omitempty"`
}

// journal keeps records on disk, one file each. Its methods may be called concurrently; a record
// belongs to one goroutine at a time.
type journal struct {
	dir string
	mu  sync.Mutex
}

// keptRecords is how many ended requests the journal remembers.
const keptRecords = 1000

func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{dir: dir}, nil
}

func (j *journal) path(id string) string { return filepath.Join(j.dir, id+".json") }

// put makes a record durable: when it returns, a power cut does not lose it.
func (j *journal) put(r *record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("journal request %s: %w", r.ID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := writeDurable(j.path(r.ID), b); err != nil {
		return fmt.Errorf("journal request %s: %w", r.ID, err)
	}
	return nil
}

// writeDurable replaces a file whole and durably.
func writeDurable(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// records returns all records, oldest first. One that cannot be read is logged and passed over: it
// was never whole, for put replaces files whole.
func (j *journal) records(log *slog.Logger) ([]*record, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	var out []*record
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		r, err := readRecord(filepath.Join(j.dir, e.Name()))
		if err != nil {
			log.Error("journal entry unreadable", "file", e.Name(), "error", err)
			continue
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record) int { return a.Created.Compare(b.Created) })
	return out, nil
}

func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, nil
}

// request returns the record as others see it.
func (r *record) request() Request {
	namespace, name, _ := strings.Cut(r.Pod, "/")
	return Request{
		ID: r.ID, SnapshotUID: r.UID, Key: r.Key, Scope: r.Scope, Pod: PodRef{Namespace: namespace, Name: name, UID: r.PodUID}, SandboxID: r.SandboxID,
		Stage: r.Stage, Error: r.Error, Store: r.Store, Created: r.Created,
	}
}

// ended reports whether nothing is owed for the request any more.
func (r *record) ended() bool { return r.Stage == StageReplicated || r.Stage == StageFailed }

// prune forgets the oldest ended requests beyond keptRecords.
func (j *journal) prune(all []*record) error {
	ended := slices.DeleteFunc(slices.Clone(all), func(r *record) bool { return !r.ended() })
	var errs []error
	for _, r := range ended[:max(0, len(ended)-keptRecords)] {
		errs = append(errs, os.Remove(j.path(r.ID)))
	}
	return errors.Join(errs...)
}

// timelines returns how the checkpoints that this node remembers went, by the UID of the snapshot.
func (j *journal) timelines(log *slog.Logger) map[string][]snapshot.Stage {
	all, err := j.records(log)
	if err != nil {
		log.Error("journal unreadable", "error", err)
	}
	out := make(map[string][]snapshot.Stage, len(all))
	for _, r := range all {
		out[r.UID] = r.Timeline
	}
	return out
}

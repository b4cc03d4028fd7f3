package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
)

// entryFormat is the format of entries that this agent writes. Entries of earlier agents have no number, and are read
// as format 1. Fields may be added without a new format if their zero value means what was true before.
const entryFormat = 1

// Entry is what this node knows of a snapshot in addition to the agent's journal and the API server.
type Entry struct {
	Key     snapshot.Key    `json:"key"`
	UID     string          `json:"uid,omitempty"` // of the snapshot; empty: not known
	Pod     snapshot.PodRef `json:"pod"`
	Plan    *rules.Plan     `json:"plan,omitempty"`    // nil: not requested through the cluster
	Trigger string          `json:"trigger,omitempty"` // name of the trigger that asked
	// Published is the UID of the PodSnapshot; empty: there was none yet. If there was one and it is gone, it was
	// deleted.
	Published string `json:"published,omitempty"`
	// RunsOn is why the pod was not stopped although it should have been.
	RunsOn string `json:"runsOn,omitempty"`
	// Deleted is set if the PodSnapshot was deleted before the object that asked for it had its answer.
	Deleted bool `json:"deleted,omitempty"`
}

// Ledger keeps entries in files, across restarts of the agent. Its methods may be called concurrently.
type Ledger struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	all    map[snapshot.Key]Entry
	marked map[mark]snapshot.Key
	unread map[string]bool // files that could not be read; they are retried when they are asked for
}

// openLedger reads the ledger. A file that cannot be read stays, and is retried later. A file that contains no entry,
// as after a crash of the machine, is removed.
func openLedger(dir string, log *slog.Logger) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := durable.Clean(dir); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{
		dir: dir, log: log, all: make(map[snapshot.Key]Entry), marked: make(map[mark]snapshot.Key),
		unread: make(map[string]bool),
	}
	for _, f := range files {
		l.read(f)
	}
	return l, nil
}

// read reads a file into memory. The caller holds l.mu, or nothing else uses l yet.
func (l *Ledger) read(path string) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Error("a file of the ledger cannot be read; it is retried", "error", err)
		l.unread[path] = true
		return
	}
	delete(l.unread, path)
	if err != nil {
		return
	}
	var version struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(b, &version) == nil && version.Format > entryFormat {
		l.log.Error("a newer agent has written this file of the ledger; it is left as it is", "file", path,
			"format", version.Format)
		return
	}
	var e Entry
	if json.Unmarshal(b, &e) == nil && e.Key.Validate() == nil && l.path(e.Key) == path {
		l.keep(e)
		return
	}
	l.log.Error("a file of the ledger holds no entry and is removed", "file", path)
	if err := os.Remove(path); err != nil {
		l.log.Error("a file of the ledger is not removed", "error", err) // the next agent tries again
	}
}

// keep takes an entry into memory. The caller holds l.mu.
func (l *Ledger) keep(e Entry) { l.all[e.Key], l.marked[markOf(e.Key)] = e, e.Key }

// find returns the key of the entry with this mark.
func (l *Ledger) find(m mark) (snapshot.Key, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.unread {
		l.read(path)
	}
	k, ok := l.marked[m]
	return k, ok
}

// path returns the file of an entry. It is a UUID, because names of snapshots may be too long for files.
func (l *Ledger) path(k snapshot.Key) string {
	return filepath.Join(l.dir, uuid.NewSHA1(uuids, []byte(k.String())).String()+".json")
}

// Get returns the entry of a snapshot.
func (l *Ledger) Get(k snapshot.Key) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if path := l.path(k); l.unread[path] {
		l.read(path)
	}
	e, ok := l.all[k]
	return e, ok
}

// Of returns the snapshots of the pod with that UID.
func (l *Ledger) Of(podUID string) (out []snapshot.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.all {
		if e.Pod.UID == podUID && podUID != "" {
			out = append(out, k)
		}
	}
	return out
}

// Put keeps an entry. Once it has returned nil, no crash of the agent or the machine loses the entry.
func (l *Ledger) Put(e Entry) error {
	b, err := json.Marshal(struct {
		Format int `json:"format"`
		Entry
	}{entryFormat, e})
	if err != nil {
		return fmt.Errorf("ledger of %s: %w", e.Key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.path(e.Key)
	if err := durable.Replace(path, b); err != nil {
		return fmt.Errorf("ledger of %s: %w", e.Key, err)
	}
	l.keep(e)
	delete(l.unread, path)
	return nil
}

// Drop forgets an entry.
func (l *Ledger) Drop(k snapshot.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, k)
	if m := markOf(k); l.marked[m] == k {
		delete(l.marked, m)
	}
	delete(l.unread, l.path(k))
	if err := os.Remove(l.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger of %s: %w", k, err)
	}
	return nil
}

// Keys returns the keys of all entries.
func (l *Ledger) Keys() (out []snapshot.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.unread {
		l.read(path)
	}
	for k := range l.all {
		out = append(out, k)
	}
	return out
}

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"diapause.dev/agent"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// entry is what is known of a snapshot on this node beside what the agent's journal and the API
// server know.
type entry struct {
	Key     snapshot.Key `json:"key"`
	Pod     agent.PodRef `json:"pod"`
	Plan    *rules.Plan  `json:"plan,omitempty"`    // nil: it was not the cluster that asked
	Trigger string       `json:"trigger,omitempty"` // the name of the trigger that asked
	// Published is the UID of the PodSnapshot; empty: there was none yet. Once there was one, its
	// absence means that it was deleted.
	Published string `json:"published,omitempty"`
	// Deleted is set where that happened before who asked for the snapshot was answered.
	Deleted bool `json:"deleted,omitempty"`
}

// ledger keeps entries in files, across restarts of the agent. Its methods may be called
// concurrently.
type ledger struct {
	dir string

	mu  sync.Mutex
	all map[snapshot.Key]entry
}

// openLedger reads what is there. A file that cannot be read is of no use and removed.
func openLedger(dir string) (*ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &ledger{dir: dir, all: make(map[snapshot.Key]entry)}
	for _, f := range files {
		var e entry
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &e)
		}
		if err == nil {
			err = e.Key.Validate()
		}
		if err != nil || l.path(e.Key) != f {
			if err := os.Remove(f); err != nil {
				return nil, fmt.Errorf("open ledger: %w", err)
			}
			continue
		}
		l.all[e.Key] = e
	}
	return l, nil
}

// path returns the file of an entry: names of snapshots may be too long for files.
func (l *ledger) path(k snapshot.Key) string {
	return filepath.Join(l.dir, uuid.NewSHA1(snapshotNames, []byte(k.String())).String()+".json")
}

// get returns the entry of a snapshot.
func (l *ledger) get(k snapshot.Key) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.all[k]
	return e, ok
}

// put keeps an entry. It is there after a crash of the agent, though perhaps not after one of the
// machine: then a PodSnapshot is made again from the agent's journal.
func (l *ledger) put(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("ledger of %s: %w", e.Key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.path(e.Key)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return fmt.Errorf("ledger of %s: %w", e.Key, err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("ledger of %s: %w", e.Key, err)
	}
	l.all[e.Key] = e
	return nil
}

// drop forgets an entry.
func (l *ledger) drop(k snapshot.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, k)
	if err := os.Remove(l.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger of %s: %w", k, err)
	}
	return nil
}

// keys returns the keys of all entries.
func (l *ledger) keys() (out []snapshot.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.all {
		out = append(out, k)
	}
	return out
}

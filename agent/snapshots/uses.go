package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"diapause.dev/runsc/durable"
)

// uses remembers when each snapshot in the spool was last restored from; eviction goes by that order. A crash may lose
// the newest entries, which affects only that order. The zero value remembers nothing across restarts. Its methods may
// be called concurrently.
type uses struct {
	path string // of the file; empty: there is none

	mu      sync.Mutex
	at      map[string]time.Time // by UID
	changed bool                 // since the file was written
}

// open reads the file of an earlier agent. Nothing else uses u yet. After an error, uses works as if there were no
// file.
func (u *uses) open(path string) error {
	u.path = path
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &u.at)
	}
	if err != nil {
		return fmt.Errorf("read when snapshots were last used: %w", err)
	}
	return nil
}

// note records that a snapshot is used now.
func (u *uses) note(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = make(map[string]time.Time)
	}
	u.at[uid], u.changed = time.Now(), true
}

// last returns when a snapshot was last used. made, when it came to the node, counts as a use.
func (u *uses) last(uid string, made time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.at[uid]; t.After(made) {
		return t
	}
	return made
}

// keep forgets all snapshots except these and writes the file.
func (u *uses) keep(uids map[string]bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := len(u.at)
	maps.DeleteFunc(u.at, func(uid string, _ time.Time) bool { return !uids[uid] })
	if u.path == "" || !u.changed && len(u.at) == before {
		return nil
	}
	b, err := json.Marshal(u.at)
	if err == nil {
		err = durable.Replace(u.path, b)
	}
	if err != nil {
		return fmt.Errorf("note when snapshots were last used: %w", err)
	}
	u.changed = false
	return nil
}

package snapshots

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/agent/place"
	"diapause.dev/runsc/durable"
	"diapause.dev/storage"
)

// storeIDs remembers across restarts which store was found at each location. So the agent does not mistake another
// store for it, nor create a new one where the store's file system is not mounted. A nil *storeIDs remembers nothing.
type storeIDs struct {
	dir        string // one file for each location; its modification time is when the store was last opened. Empty: none
	configured map[string]string
}

// storeID is the content of a file.
type storeID struct {
	Location string `json:"location"`
	ID       string `json:"id"`
}

func (s *storeIDs) path(location string) string { return filepath.Join(s.dir, s.name(location)) }

// name returns the name of a location's file.
func (s *storeIDs) name(location string) string {
	digest := sha256.Sum256([]byte(location))
	return hex.EncodeToString(digest[:8]) + ".json"
}

// expected returns the identity that the store at a location must have. "" means any: none is recorded.
func (s *storeIDs) expected(location string) (string, error) {
	if s == nil {
		return "", nil
	}
	if id := s.configured[location]; id != "" {
		return id, nil
	}
	if s.dir == "" {
		return "", nil
	}
	b, err := os.ReadFile(s.path(location))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var known storeID
	if err == nil {
		err = json.Unmarshal(b, &known)
	}
	if err == nil && (known.Location != location || known.ID == "") {
		err = errors.New("it is damaged")
	}
	if err != nil {
		return "", fmt.Errorf("read which store is there, in %s: %w", s.path(location), err)
	}
	return known.ID, nil
}

// opened notes that the store that was expected at a location has been opened now. If that fails, the store is merely
// forgotten earlier than others: see forgetStores.
func (s *storeIDs) opened(location string) {
	if s == nil || s.dir == "" || s.configured[location] != "" {
		return
	}
	now := time.Now()
	_ = os.Chtimes(s.path(location), now, now)
}

// record writes down which store is at a location.
func (s *storeIDs) record(location, id string) error {
	if s == nil || s.dir == "" {
		return nil
	}
	b, err := json.Marshal(storeID{Location: location, ID: id})
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(s.path(location), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write down which store is there: %w", err)
	}
	return nil
}

// advise adds to an error of opening a store what the operator can do.
func (s *storeIDs) advise(location string, err error) error {
	if errors.Is(err, place.ErrNoStore) && !errors.Is(err, storage.ErrIdentity) {
		return fmt.Errorf("%w: mount it, or make one with diapause-agent make-store --store=%s", err, location)
	}
	if s == nil || !errors.Is(err, storage.ErrIdentity) {
		return err
	}
	if s.configured[location] != "" {
		return fmt.Errorf("%w: mount it, or correct --store-id", err)
	}
	return fmt.Errorf("%w: mount it; if that store was abandoned on purpose, delete %s", err, s.path(location))
}

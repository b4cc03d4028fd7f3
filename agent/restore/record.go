package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
)

// recordFile is a file in a request's directory. It holds what the next agent must know to go on with the restore.
const recordFile = "restore.json"

// recordFormat is the format of records that this agent writes. Records of earlier agents have no number, and are read
// as format 1. Fields may be added without a new format if their zero value means what was true before.
const recordFormat = 1

// errNewer is the kind of error of a record that a newer agent has written.
var errNewer = errors.New("a newer agent has written it")

// record is what the next agent must know about a restore.
type record struct {
	Format    int             `json:"format,omitempty"`
	Request   string          `json:"request"`
	Token     string          `json:"token"`
	Key       snapshot.Key    `json:"key"`
	UID       string          `json:"uid,omitempty"` // of the snapshot: another one may get its key later
	Scope     snapshot.Scope  `json:"scope,omitempty"`
	Store     string          `json:"store,omitempty"` // location; empty: any
	SandboxID string          `json:"sandboxID"`
	Loaded    bool            `json:"loaded,omitempty"` // the sandbox has had everything, and may ask again
	Pod       snapshot.PodRef `json:"pod"`
	Limit     int64           `json:"limit,omitempty"` // of the pod's memory, in bytes; 0: not known
	Wakes     bool            `json:"wakes,omitempty"` // it wakes a pod that sleeps, or has slept
}

// sleeper returns the pod as one that sleeps, or has slept, on the snapshot.
func (r *record) sleeper() asleep.Sleeper {
	return asleep.Sleeper{Pod: r.Pod, Sandbox: r.SandboxID, Snapshot: snapshots.ID{Key: r.Key, UID: r.UID}}
}

// imageOptions returns where the image is read from.
func (r *record) imageOptions() loading.Options {
	return loading.Options{
		Request: r.Request, ID: snapshots.ID{Key: r.Key, UID: r.UID}, Store: r.Store,
		Reopens: r.Scope == snapshot.RootfsOnly,
	}
}

// records are the records in the directories of requests.
type records struct{ dir requests.Dir }

// remember writes down what the next agent must know.
func (d records) remember(r *restore) error {
	r.mu.Lock()
	rec := r.record
	r.mu.Unlock()
	rec.Format = recordFormat
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(d.dir.Path(r.Request), recordFile), b)
}

// read reads the record of a request. If the record has a newer format, the error is of kind errNewer.
func (d records) read(request string) (rec record, err error) {
	path, err := d.dir.File(request, recordFile)
	if err != nil {
		return rec, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return rec, err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return rec, fmt.Errorf("%s: %w", path, err)
	}
	if version.Format > recordFormat {
		return rec, fmt.Errorf("%s: format %d: %w", path, version.Format, errNewer)
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("%s: %w", path, err)
	}
	return rec, rec.Key.Validate()
}

package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

var saved = snapshot.Key{Namespace: "n", Name: "s"}

// rig is a node that can prepare restores, without containerd.
type rig struct {
	*Restores
	*Wakes
	*Needs
	registry  *registry
	reminders *asleep.Reminders
	config    Config
	dir       string // of the reminders
	newest    asleep.Runtime
	stores    *snapshots.Stores
}

// newRig returns a rig whose runsc is a script.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, snapshots.Options{})
}

// newRigWith returns a rig with options for its stores. It sets their places.
func newRigWith(t *testing.T, o snapshots.Options) *rig {
	t.Helper()
	dir := t.TempDir()
	binary, config := filepath.Join(dir, "runsc"), filepath.Join(dir, "runsc.toml")
	for path, text := range map[string]string{
		binary: "#!/bin/sh\necho runsc version test\n",
		config: "binary_name = \"" + binary + "\"\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o.StateDir, o.Store, o.Opened, o.Logger = dir, "dir:"+dir+"/store", func() {}, journaltest.Quiet
	stores, err := snapshots.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{stores: stores, dir: filepath.Join(dir, "asleep"), config: Config{
		Requests: newRequests(t), VolumeLimit: 1 << 30, Lineage: snapshots.NewLineage(),
		Facts: runsc.NewNode(config).Facts, Metrics: counted{}, Logger: journaltest.Quiet,
	}}
	r.next(t)
	t.Cleanup(func() {
		r.end()
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// next ends the agent and makes what the next agent has.
func (r *rig) next(t *testing.T) {
	t.Helper()
	if r.Restores != nil {
		r.end()
	}
	r.config.Life = lifetime.New(t.Context())
	r.config.Readers = snapshots.OpenReaders(r.stores, r.config.Life)
	marks := asleep.NewMarks(r.config.Requests, journaltest.Quiet)
	r.reminders = asleep.NewReminders(asleep.Config{
		Dir: r.dir, Runtime: r.newest, Marks: marks, Logger: journaltest.Quiet,
	})
	r.config.Marks, r.config.Reminders = marks, r.reminders
	r.Restores = New(r.config)
	r.Wakes, r.registry = NewWakes(r.Restores), r.Restores.registry
	r.Needs = NewNeeds(r.config.Requests, marks, r.reminders)
}

func (r *rig) end() {
	r.Life.End(errkind.ErrStopping)
	r.Life.Wait()
}

// counted discards metrics.
type counted struct{}

func (counted) Restore(error, time.Duration, int64) {}

// make stores a snapshot with a file of some text. It replaces the snapshot of the same name.
func (a *rig) make(t *testing.T, uid, text string, scope snapshot.Scope) {
	t.Helper()
	a.makeIn(t, a.stores.Spool(), uid, text, scope)
}

// makeIn is make, in a store.
func (a *rig) makeIn(t *testing.T, s *storage.Store, uid, text string, scope snapshot.Scope) {
	t.Helper()
	if err := s.Remove(t.Context(), saved); err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	facts, err := a.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWriter(t.Context(), saved, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File(runsc.StateFile).Chunk([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{Key: saved, UID: uid, Facts: facts, Scope: scope}); err != nil {
		t.Fatal(err)
	}
}

// first returns the first four bytes that a restore's sandbox would read.
func (r *restore) first(t *testing.T) (string, error) {
	t.Helper()
	p := make([]byte, 4)
	err := r.image.ReadAt(t.Context(), runsc.StateFile, 0, p)
	return string(p), err
}

func (a *rig) mustPrepare(t *testing.T, sandbox string) *restore {
	t.Helper()
	r, _, err := a.prepare(t.Context(), Choice{Snapshot: saved}, snapshot.PodRef{Namespace: "n", Name: sandbox}, sandbox,
		0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newRequests(t *testing.T) requests.Dir { return requests.Dir(t.TempDir()) }

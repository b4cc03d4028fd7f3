package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

var saved = snapshot.Key{Namespace: "n", Name: "s"}

// newRestoring returns an agent, not running, that can prepare restores.
func newRestoring(t *testing.T) *Agent {
	t.Helper()
	a := newStoring(t, nil)
	a.metrics, a.lineage = newMetrics(), make(map[descent]storage.Key)
	a.cfg.RequestDir, a.cfg.RunscConfig = t.TempDir(), filepath.Join(t.TempDir(), "runsc.toml")
	a.node = &nodeFacts{config: a.cfg.RunscConfig}
	runsc := filepath.Join(t.TempDir(), "runsc")
	for path, text := range map[string]string{
		runsc:             "#!/bin/sh\necho runsc version test\n",
		a.cfg.RunscConfig: "binary_name = \"" + runsc + "\"\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// make puts a snapshot with a file of some text in the place of the one that has that name.
func (a *Agent) make(t *testing.T, uid, text string, scope snapshot.Scope) {
	t.Helper()
	if err := a.spool.Remove(t.Context(), saved); err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	facts, err := a.node.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := a.spool.NewWriter(t.Context(), saved, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File(checkpointfiles.StateFileName).Chunk([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{Key: saved, UID: uid, Facts: facts, Scope: scope}); err != nil {
		t.Fatal(err)
	}
}

// first returns the first four bytes that a restore's sandbox would read.
func (r *restore) first(t *testing.T, rs *restores) (string, error) {
	t.Helper()
	p := make([]byte, 4)
	err := (&source{rs: rs, restore: r}).read(t.Context(), checkpointfiles.StateFileName, 0, p)
	return string(p), err
}

func (a *Agent) mustPrepare(t *testing.T, sandbox string) *restore {
	t.Helper()
	r, _, err := a.restores.prepare(t.Context(), Choice{Snapshot: saved}, snapshot.PodRef{Namespace: "n", Name: sandbox}, sandbox,
		0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReplacedWhileRestored: a restore that is under way keeps to its snapshot, and the next one is of
// the new snapshot of that name.
func TestReplacedWhileRestored(t *testing.T) {
	a := newRestoring(t)
	a.make(t, "one", "old!", snapshot.WholePod)
	a.mustPrepare(t, "before")
	a.make(t, "two", "new!", snapshot.WholePod)
	after := a.mustPrepare(t, "after")
	if got, err := after.first(t, a.restores); got != "new!" || err != nil {
		t.Errorf("the new sandbox reads %q, %v", got, err)
	}
	if !a.restores.using(saved) {
		t.Error("it is not in use")
	}
}

// TestReplacedAfterLoading: a container that is started again is not given files of another snapshot.
func TestReplacedAfterLoading(t *testing.T) {
	a := newRestoring(t)
	a.make(t, "one", "old!", snapshot.RootfsOnly)
	r := a.mustPrepare(t, "sandbox")
	if err := a.restores.loaded(r.Request); err != nil {
		t.Fatal(err)
	}
	if got, err := r.first(t, a.restores); got != "old!" || err != nil {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
	a.make(t, "two", "new!", snapshot.RootfsOnly)
	if got, err := r.first(t, a.restores); !errors.Is(err, errkind.ErrReplaced) || !final(err) {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
}

// TestReplacedWithoutAgent: the next agent goes on with the very snapshot, loaded or not, or not at all.
func TestReplacedWithoutAgent(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		a := newRestoring(t)
		a.make(t, "one", "old!", snapshot.RootfsOnly)
		r := a.mustPrepare(t, "sandbox")
		if loaded {
			if err := a.restores.loaded(r.Request); err != nil {
				t.Fatal(err)
			}
		}
		a.restores = newRestores(a)
		a.make(t, "two", "new!", snapshot.RootfsOnly)
		revived, err := a.restores.find(t.Context(), r.Request)
		if err == nil {
			_, err = revived.first(t, a.restores)
		}
		if !errors.Is(err, errkind.ErrReplaced) {
			t.Errorf("loaded %v: %v", loaded, err)
		}
	}
}

// TestReplacedSinceChosen: a snapshot that has been looked at is restored, or none.
func TestReplacedSinceChosen(t *testing.T) {
	a := newRestoring(t)
	a.make(t, "two", "new!", snapshot.WholePod)
	pod := snapshot.PodRef{Namespace: "n", Name: "p"}
	_, _, err := a.restores.prepare(t.Context(), Choice{Snapshot: saved, UID: "one"}, pod, "sandbox", 0)
	if !errors.Is(err, errkind.ErrReplaced) || !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("chosen by the cluster: %v", err)
	}
	defer a.restores.watch(pod.String(), "one").forget()
	if _, _, err = a.restores.prepare(t.Context(), Choice{Snapshot: saved}, pod, "sandbox", 0); !errors.Is(err,
		errkind.ErrReplaced) {
		t.Errorf("chosen by a request of this node: %v", err)
	}
	if _, _, err = a.restores.prepare(t.Context(), Choice{Snapshot: saved, UID: "two"}, pod, "sandbox", 0); err != nil {
		t.Error(err)
	}
}

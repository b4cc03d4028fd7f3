package restore

import (
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/loading"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// TestReplacedWhileRestored: a restore under way keeps its snapshot. The next restore uses the new snapshot of that
// name.
func TestReplacedWhileRestored(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.WholePod)
	a.mustPrepare(t, "before")
	a.make(t, "two", "new!", snapshot.WholePod)
	after := a.mustPrepare(t, "after")
	if got, err := after.first(t); got != "new!" || err != nil {
		t.Errorf("the new sandbox reads %q, %v", got, err)
	}
	if !a.Readers.Using(saved) {
		t.Error("it is not in use")
	}
}

// TestReplacedAfterLoading: a container that is started again is not given files of another snapshot.
func TestReplacedAfterLoading(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.RootfsOnly)
	r := a.mustPrepare(t, "sandbox")
	if err := a.Loaded(r.Request); err != nil {
		t.Fatal(err)
	}
	if got, err := r.first(t); got != "old!" || err != nil {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
	a.make(t, "two", "new!", snapshot.RootfsOnly)
	if got, err := r.first(t); !errors.Is(err, errkind.ErrReplaced) || !loading.Final(err) {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
}

// TestReplacedWithoutAgent: the next agent continues a restore, loaded or not, only with the very snapshot that it
// began with.
func TestReplacedWithoutAgent(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		a := newRig(t)
		a.make(t, "one", "old!", snapshot.RootfsOnly)
		r := a.mustPrepare(t, "sandbox")
		if loaded {
			if err := a.Loaded(r.Request); err != nil {
				t.Fatal(err)
			}
		}
		a.next(t)
		a.make(t, "two", "new!", snapshot.RootfsOnly)
		revived, err := a.registry.find(t.Context(), r.Request)
		if err == nil {
			_, err = revived.first(t)
		}
		if !errors.Is(err, errkind.ErrReplaced) {
			t.Errorf("loaded %v: %v", loaded, err)
		}
	}
}

// TestReplacedSinceChosen: a restore uses the snapshot that was chosen, or fails.
func TestReplacedSinceChosen(t *testing.T) {
	a := newRig(t)
	a.make(t, "two", "new!", snapshot.WholePod)
	pod := snapshot.PodRef{Namespace: "n", Name: "p"}
	_, _, err := a.prepare(t.Context(), Choice{Snapshot: saved, UID: "one"}, pod, "sandbox", 0)
	if !errors.Is(err, errkind.ErrReplaced) || !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("chosen by the cluster: %v", err)
	}
	defer a.Watch(pod.String(), "one").Forget()
	if _, _, err = a.prepare(t.Context(), Choice{Snapshot: saved}, pod, "sandbox", 0); !errors.Is(err,
		errkind.ErrReplaced) {
		t.Errorf("chosen by a request of this node: %v", err)
	}
	if _, _, err = a.prepare(t.Context(), Choice{Snapshot: saved, UID: "two"}, pod, "sandbox", 0); err != nil {
		t.Error(err)
	}
}

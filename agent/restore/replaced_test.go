package restore

import (
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// TestReplacedWhileRestored: a restore that is under way keeps to its snapshot, and the next one is of
// the new snapshot of that name.
func TestReplacedWhileRestored(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.WholePod)
	a.mustPrepare(t, "before")
	a.make(t, "two", "new!", snapshot.WholePod)
	after := a.mustPrepare(t, "after")
	if got, err := after.first(t, a.Restores); got != "new!" || err != nil {
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
	if got, err := r.first(t, a.Restores); got != "old!" || err != nil {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
	a.make(t, "two", "new!", snapshot.RootfsOnly)
	if got, err := r.first(t, a.Restores); !errors.Is(err, errkind.ErrReplaced) || !final(err) {
		t.Errorf("the sandbox reads %q, %v", got, err)
	}
}

// TestReplacedWithoutAgent: the next agent goes on with the very snapshot, loaded or not, or not at all.
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
		revived, err := a.find(t.Context(), r.Request)
		if err == nil {
			_, err = revived.first(t, a.Restores)
		}
		if !errors.Is(err, errkind.ErrReplaced) {
			t.Errorf("loaded %v: %v", loaded, err)
		}
	}
}

// TestReplacedSinceChosen: a snapshot that has been looked at is restored, or none.
func TestReplacedSinceChosen(t *testing.T) {
	a := newRig(t)
	a.make(t, "two", "new!", snapshot.WholePod)
	pod := snapshot.PodRef{Namespace: "n", Name: "p"}
	_, _, err := a.prepare(t.Context(), Choice{Snapshot: saved, UID: "one"}, pod, "sandbox", 0)
	if !errors.Is(err, errkind.ErrReplaced) || !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("chosen by the cluster: %v", err)
	}
	defer a.watch(pod.String(), "one").forget()
	if _, _, err = a.prepare(t.Context(), Choice{Snapshot: saved}, pod, "sandbox", 0); !errors.Is(err,
		errkind.ErrReplaced) {
		t.Errorf("chosen by a request of this node: %v", err)
	}
	if _, _, err = a.prepare(t.Context(), Choice{Snapshot: saved, UID: "two"}, pod, "sandbox", 0); err != nil {
		t.Error(err)
	}
}

package snapshots

import (
	"context"
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// TestGuard has everybody who removes snapshots remove one that a sleeping pod needs, and then one that none needs.
func TestGuard(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "asleep"}
	for name, remove := range map[string]func(context.Context, *rig) error{
		"rm": func(ctx context.Context, a *rig) error {
			return a.catalog.Remove(ctx, Removal{ID: ID{Key: k}, From: FromEverywhere})
		},
		"retention": func(ctx context.Context, a *rig) error {
			return a.catalog.Remove(ctx, Removal{ID: ID{k, "uid"}, From: FromSpool | FromStore, InUse: InUseIgnored})
		},
		"deletion": func(ctx context.Context, a *rig) error {
			return a.catalog.Remove(ctx, Removal{ID: ID{k, "uid"}, From: FromSpool, InUse: InUseIgnored})
		},
		"forget": func(ctx context.Context, a *rig) error {
			return a.catalog.Remove(ctx, Removal{ID: ID{k, "uid"}, From: FromSpool})
		},
		"cache": func(ctx context.Context, a *rig) error {
			a.stores.o.CacheSize = 0
			return a.evictor.shrinkSpool(ctx)
		},
		"sweep": func(ctx context.Context, a *rig) error {
			a.evictor.Tidy(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newRig(t, nil)
			asleep := true
			a.asleep = func(key snapshot.Key, uid string) string {
				if asleep && key == k && (uid == "" || uid == "uid") {
					return "n/sleeper"
				}
				return ""
			}
			replicated(t, a, 1, k.Name, "uid")
			putData(t, a.stores.spool, k.Name, "uid")
			putData(t, a.own(t), k.Name, "uid")
			if err := remove(t.Context(), a); err != nil &&
				(!errors.Is(err, errkind.ErrInUse) || !strings.Contains(err.Error(), "n/sleeper")) {
				t.Errorf("%v, want an error that names the pod", err)
			}
			wantSpool(t, a, k.Name)
			if _, err := a.own(t).Manifest(t.Context(), k); err != nil {
				t.Error(err)
			}
			if asleep = false; name == "sweep" {
				return // it removes only what nothing names
			}
			if err := remove(t.Context(), a); err != nil {
				t.Error(err)
			}
			wantSpool(t, a)
		})
	}
}

// TestDetach detaches a snapshot that waits for its store: it stays on its node, and nobody stores it any more, not
// even who was about to.
func TestDetach(t *testing.T) {
	a := newRig(t, nil)
	r := journaltest.Record(1, journal.StageSpooled)
	r.Key, r.UID = snapshot.Key{Namespace: "n", Name: "asleep"}, "uid"
	journaltest.Put(t, a.journal, r)
	putData(t, a.stores.spool, r.Key.Name, r.UID)
	for _, uid := range []string{"another", r.UID} {
		if err := a.catalog.Detach(t.Context(), r.Key, uid); err != nil {
			t.Fatal(err)
		}
		if ended := a.journal.Get(r.ID).Ended(); ended != (uid == r.UID) {
			t.Errorf("UID %s: ended: %v", uid, ended)
		}
	}
	err := a.replicator.Replicate(t.Context(), r, func(int64, int64) {})
	if !errors.Is(err, errkind.ErrNeverReplicated) || r.Stage != journal.StageFailed {
		t.Errorf("replicated: %v, %s", err, r.Stage)
	}
	wantSpool(t, a, r.Key.Name)
	if _, err := a.own(t).Manifest(t.Context(), r.Key); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("in the store: %v", err)
	}
}

package restore

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/signing/signingtest"
)

// forge replaces the snapshot in the spool by one with the same UID, as somebody would who can only write there.
func (a *rig) forge(t *testing.T, o storage.Options, scope snapshot.Scope) {
	t.Helper()
	o.Logger = journaltest.Quiet
	theirs, err := storage.Open(t.Context(), a.stores.Spool().Backend(), o)
	if err != nil {
		t.Fatal(err)
	}
	a.makeIn(t, theirs, "one", "evil", scope)
}

// TestHostileUnsignedRestore: a snapshot was replaced by a valid one with its name and UID. Without trusted keys it is
// restored. With them, it is refused to a new sandbox, to a request of the command line, to a sandbox that waits for
// the next agent, and to a container that is started again.
func TestHostileUnsignedRestore(t *testing.T) {
	own, foreign := signingtest.New(t), signingtest.New(t)
	pod := snapshot.PodRef{Namespace: "n", Name: "p"}
	unprotected := newRigWith(t, snapshots.Options{SigningKey: own.PrivateFile})
	unprotected.forge(t, storage.Options{}, snapshot.WholePod)
	if got, err := unprotected.mustPrepare(t, "sandbox").first(t); got != "evil" || err != nil {
		t.Fatalf("without trusted keys: %q, %v", got, err)
	}
	for by, forged := range map[string]storage.Options{
		"not signed": {}, "signed by " + foreign.Fingerprint: {SigningKey: foreign.Private},
	} {
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, storage.ErrUntrusted) || !loading.Final(err) ||
				!strings.Contains(err.Error(), "snapshot n/s in") || !strings.Contains(err.Error(), by) {
				t.Errorf("%s, %s: %v", by, what, err)
			}
		}
		for _, scope := range []snapshot.Scope{snapshot.WholePod, snapshot.RootfsOnly} {
			a := newRigWith(t, snapshots.Options{SigningKey: own.PrivateFile, TrustedKeys: own.PublicFile})
			a.make(t, "one", "good", scope)
			loading, reloading := a.mustPrepare(t, "loading"), a.mustPrepare(t, "reloading")
			for _, r := range []*restore{loading, reloading} {
				if got, err := r.first(t); got != "good" || err != nil {
					t.Fatalf("%s, signed by this node: %q, %v", by, got, err)
				}
			}
			if scope == snapshot.RootfsOnly {
				if err := a.Loaded(reloading.Request); err != nil {
					t.Fatal(err)
				}
			}
			a.next(t)
			a.forge(t, forged, scope)
			_, _, err := a.prepare(t.Context(), Choice{Snapshot: saved, UID: "one"}, pod, "sandbox", 0)
			refused("a new sandbox", err)
			reader, err := a.Readers.Open(t.Context(), snapshots.ID{Key: saved}, "")
			if err == nil {
				a.Readers.Release(reader)
			}
			refused("the command line", err)
			_, err = a.registry.find(t.Context(), loading.Request)
			refused("the next agent", err)
			if scope == snapshot.RootfsOnly {
				r, err := a.registry.find(t.Context(), reloading.Request)
				if err != nil {
					t.Fatal(err)
				}
				_, err = r.first(t)
				refused("a container that is started again", err)
			}
		}
	}
}

package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/signing/signingtest"
)

// forge replaces a snapshot at the place of s by a valid one, as somebody would who can only write there.
func forge(t *testing.T, s *storage.Store, k snapshot.Key, o storage.Options) {
	t.Helper()
	o.Logger = journaltest.Quiet
	theirs, err := storage.Open(t.Context(), s.Backend(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Remove(t.Context(), k); err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	put(t, theirs, k)
}

// TestHostileUnsignedReaders: a snapshot in the store, or in the spool, is replaced by a valid one that is not signed,
// or by another key. No reader is opened. All else goes on: it is listed, verified and removed.
func TestHostileUnsignedReaders(t *testing.T) {
	own, foreign := signingtest.New(t), signingtest.New(t)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	for _, trusting := range []bool{false, true} {
		o := Options{SigningKey: own.PrivateFile}
		if trusting {
			o.TrustedKeys = own.PublicFile
		}
		for by, forged := range map[string]storage.Options{
			"not signed": {}, "signed by " + foreign.Fingerprint: {SigningKey: foreign.Private},
		} {
			a := newRigWith(t, nil, o)
			for _, s := range []*storage.Store{a.own(t), a.stores.spool} {
				forge(t, s, k, forged)
				r, err := a.readers.Open(t.Context(), ID{Key: k, UID: "u"}, "")
				_, chosen := a.catalog.TrustedManifest(t.Context(), k, "")
				if !trusting {
					if err != nil || chosen != nil {
						t.Fatalf("%s, nobody is trusted: %v, %v", by, err, chosen)
					}
					a.readers.Release(r)
					continue
				}
				for _, err := range []error{err, chosen} {
					if !errors.Is(err, storage.ErrUntrusted) || !strings.Contains(err.Error(), "snapshot n/s in dir:") ||
						!strings.Contains(err.Error(), " is "+by+":") || !strings.Contains(err.Error(), "--trusted-keys") {
						t.Errorf("%s: %v", by, err)
					}
				}
			}
			if !trusting {
				continue
			}
			if found, damaged, err := a.catalog.List(t.Context(), ""); len(found) != 1 || len(damaged) != 0 || err != nil {
				t.Errorf("%s: listed %d, %v, %v", by, len(found), damaged, err)
			}
			if _, err := a.catalog.Manifest(t.Context(), k, ""); err != nil {
				t.Errorf("%s: its manifest is not described: %v", by, err)
			}
			for _, repair := range []bool{false, true} {
				v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, repair)
				if err != nil || v.Err != nil || len(v.Signatures) != 2 || !v.Signatures[0].Refused ||
					!strings.HasSuffix(by, v.Signatures[1].Signer) {
					t.Errorf("%s: verified: %+v, %v", by, v, err)
				}
			}
			if err := a.catalog.Remove(t.Context(), Removal{ID: ID{Key: k}, From: FromEverywhere}); err != nil {
				t.Errorf("%s: removed: %v", by, err)
			}
		}
	}
}

// TestSignedReaders: what this node has signed is restored from the spool and from the store. Where the spool's copy
// was replaced, the store's is taken.
func TestSignedReaders(t *testing.T) {
	own := signingtest.New(t)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a := newRigWith(t, nil, Options{SigningKey: own.PrivateFile, TrustedKeys: own.PublicFile})
	put(t, a.stores.spool, k)
	if err := storage.Replicate(t.Context(), a.own(t), a.stores.spool, k, nil); err != nil {
		t.Fatal(err)
	}
	open := func(onNode bool) {
		t.Helper()
		r, err := a.readers.Open(t.Context(), ID{Key: k}, "")
		if err != nil {
			t.Fatal(err)
		}
		defer a.readers.Release(r)
		if r.OnNode != onNode || r.Manifest.SignedBy() != own.Fingerprint {
			t.Errorf("on the node: %v, by %q", r.OnNode, r.Manifest.SignedBy())
		}
	}
	open(true)
	forge(t, a.stores.spool, k, storage.Options{})
	open(false)
	v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, false)
	if err != nil || len(v.Signatures) != 2 || v.Signatures[0].Signer != "" || !v.Signatures[0].Refused ||
		v.Signatures[1].Signer != own.Fingerprint || v.Signatures[1].Refused {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestKeyFiles: an agent does not start with keys that it cannot read, or with which it could not restore its own
// snapshots.
func TestKeyFiles(t *testing.T) {
	one, two := signingtest.New(t), signingtest.New(t)
	both := filepath.Join(t.TempDir(), "both.pem")
	var text []byte
	for _, p := range []signingtest.Pair{one, two} {
		b, err := os.ReadFile(p.PublicFile)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	if err := os.WriteFile(both, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		signing, trusted string
		want             []string // in the error; none: it starts
	}{
		{one.PrivateFile, "", nil},
		{"", one.PublicFile, nil},
		{one.PrivateFile, both, nil},
		{two.PrivateFile, both, nil},
		{one.PublicFile, "", []string{"--signing-key", one.PublicFile, "a public key"}},
		{"", "/nowhere.pem", []string{"--trusted-keys", "/nowhere.pem"}},
		{one.PrivateFile, two.PublicFile, []string{one.Fingerprint, one.PrivateFile, two.PublicFile, "-pubout"}},
	} {
		s, err := Open(t.Context(), Options{
			StateDir: t.TempDir(), Store: "dir:" + madeStore(t), SigningKey: c.signing, TrustedKeys: c.trusted,
			Opened: func() {}, Logger: journaltest.Quiet,
		})
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if (err == nil) != (c.want == nil) || err != nil && !errors.Is(err, errkind.ErrInvalid) {
			t.Errorf("%q, %q: %v", c.signing, c.trusted, err)
		}
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q, %q: %v, want %q", c.signing, c.trusted, err, w)
			}
		}
	}
}

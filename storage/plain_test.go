package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// writeAs makes a snapshot with a UID.
func writeAs(t *testing.T, s *storage.Store, k storage.Key, uid string) *storage.Manifest {
	t.Helper()
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for name, chunks := range tinyImage() {
		for _, c := range chunks {
			if err := w.File(name).Chunk(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, err := w.Commit(t.Context(), snapshot.Meta{UID: uid})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEncryptionTurnedOn: snapshots from before are read, unless the key file forbids it. Who knows nothing but the
// name of one learns that it may be anybody's, unless the key file allows all.
func TestEncryptionTurnedOn(t *testing.T) {
	plain := storagetest.NewDir(t)
	storagetest.Write(t, plain, key, nil, tinyImage())
	for words, want := range map[string]struct{ read, unknown error }{
		"":                 {nil, storage.ErrUntrusted},
		"\nnone":           {nil, nil},
		"\nencrypted-only": {storage.ErrKey, nil},
	} {
		s := locked(t, plain, keyDir(t, "ns", hexKey(1)+words))
		m, err := s.Manifest(t.Context(), key)
		if !errors.Is(err, want.read) {
			t.Errorf("%q: read: %v", words, err)
		}
		if err != nil {
			continue
		}
		storagetest.WantImage(t, m, tinyImage(), s)
		if err := s.CheckUnknown(m); !errors.Is(err, want.unknown) {
			t.Errorf("%q: by name: %v", words, err)
		}
	}
}

// TestHostilePlain: whoever can write to a store replaces the manifest of an encrypted snapshot by one that is not
// encrypted, with the same name and UID. Nobody reads it, with whatever words in the key file. A repair brings it back.
func TestHostilePlain(t *testing.T) {
	plain := storagetest.NewDir(t)
	for _, words := range []string{"", "\nnone", "\nencrypted-only"} {
		s := locked(t, plain, keyDir(t, "ns", hexKey(1)+words))
		k := storage.Key{Namespace: "ns", Name: "target"}
		uid := snapshot.MakeUID("0123", true)
		m := writeAs(t, s, k, uid)
		if !m.Encrypted() || s.CheckUnknown(m) != nil {
			t.Fatal("it is not encrypted")
		}
		theirs := writeAs(t, plain, storage.Key{Namespace: "ns", Name: "theirs"}, "x")
		forged, err := storage.Forge(theirs, k, uid)
		if err != nil {
			t.Fatal(err)
		}
		spool := locked(t, storagetest.NewDir(t), keyDir(t, "ns", hexKey(1)))
		if err := storage.Replicate(t.Context(), spool, s, k, nil); err != nil {
			t.Fatal(err)
		}
		overwrite(t, objectPath(plain, "ns/snapshots/target/manifest"), forged)
		for what, reader := range map[string]*storage.Store{"with keys": s, "without": plain} {
			if _, err := reader.Manifest(t.Context(), k); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%q, %s: %v", words, what, err)
			}
		}
		if r, err := storage.Repair(t.Context(), k, s, []*storage.Store{spool}, nil); len(r.Repaired) == 0 || err != nil {
			t.Errorf("%q: not repaired: %+v, %v", words, r, err)
		}
		if back, err := s.Manifest(t.Context(), k); err != nil || back.Digest != m.Digest {
			t.Errorf("%q: repaired: %v", words, err)
		}
		for _, k := range []storage.Key{k, theirs.Meta.Key} {
			if err := plain.Remove(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKeyTakenAway: a snapshot that was begun as an encrypted one is not committed as another.
func TestKeyTakenAway(t *testing.T) {
	w, err := storagetest.NewDir(t).NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	_, err = w.Commit(t.Context(), snapshot.Meta{UID: snapshot.MakeUID("0123", true)})
	if !errors.Is(err, storage.ErrKey) {
		t.Error(err)
	}
}

// TestKeyFileChanges: the key file changes after a snapshot was begun. What is committed can be read with the new file;
// anything else is refused, and leaves nothing.
func TestKeyFileChanges(t *testing.T) {
	const gone = ""
	for name, c := range map[string]struct {
		parent        bool
		before, after string
		want          error
	}{
		"a new key above":                {false, hexKey(1), hexKey(2) + "\n" + hexKey(1), nil},
		"a new key above, with a parent": {true, hexKey(1), hexKey(2) + "\n" + hexKey(1), nil},
		"another key":                    {false, hexKey(1), hexKey(2), nil},
		"another key, with a parent":     {true, hexKey(1), hexKey(2), storage.ErrKey},
		"encryption is turned off":       {false, hexKey(1), "none\n" + hexKey(1), storage.ErrKey},
		"encryption is turned on":        {false, "none", hexKey(1), nil},
		"nothing in the clear":           {false, "none", hexKey(1) + "\nencrypted-only", storage.ErrKey},
		"gone":                           {false, hexKey(1), gone, storage.ErrKey},
		"gone, without encryption":       {false, "none", gone, storage.ErrKey},
		"damaged, without encryption":    {false, "none", "half a key", storage.ErrKey},
	} {
		keys := keyDir(t, "ns", c.before)
		s := locked(t, storagetest.NewDir(t), keys)
		var parent *storage.Manifest
		if c.parent {
			parent = storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "parent"}, nil, tinyImage())
		}
		was := len(objects(t, s, "ns/"))
		w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		storagetest.Fill(t, w, secretImage())
		if file := filepath.Join(string(keys), "ns"); c.after == gone {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte(c.after), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.Commit(t.Context(), snapshot.Meta{UID: "u"})
		w.Abort()
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), "namespace ns") {
			t.Errorf("%s: %v, want kind %v", name, err, c.want)
		}
		switch left := objects(t, s, "ns/"); {
		case err == nil:
			storagetest.WantImage(t, m, secretImage(), s)
			if _, err := locked(t, s, keys).Manifest(t.Context(), key); err != nil {
				t.Errorf("%s: it cannot be read: %v", name, err)
			}
		case len(left) != was:
			t.Errorf("%s: it leaves %q", name, left)
		}
	}
}

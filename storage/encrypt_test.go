package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/keyring"
	"diapause.dev/storage/storagetest"
)

// hexKey returns a key as a line of a key file.
func hexKey(seed uint64) string { return fmt.Sprintf("%x", storagetest.Bytes(seed, 32)) }

// keyDir returns a directory of keys with a file for each pair of arguments.
func keyDir(t *testing.T, files ...string) keyring.Dir {
	t.Helper()
	path := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		overwrite(t, filepath.Join(path, files[i]), []byte(files[i+1]))
	}
	return keyring.Dir(path)
}

// locked opens the store at the place of s with keys.
func locked(t *testing.T, s *storage.Store, keys storage.Keyring) *storage.Store {
	t.Helper()
	l, err := storage.Open(t.Context(), s.Backend(), storage.Options{Keyring: keys})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// secretImage returns an image with a word that must not be found in the store.
func secretImage() storagetest.Image {
	image := storagetest.SmallImage(1)
	image["pages.img"] = append(image["pages.img"], append([]byte("xyzzy"), storagetest.Bytes(8, 2000)...),
		bytes.Repeat([]byte("xyzzy"), 1000))
	return image
}

// TestEncrypted: no content of a snapshot can be found in the store, and all of it can be read with the key.
func TestEncrypted(t *testing.T) {
	plain := storagetest.NewDir(t)
	s := locked(t, plain, keyDir(t, "ns", hexKey(1)))
	image := secretImage()
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for name, chunks := range image {
		for _, c := range chunks {
			if err := w.File(name).Chunk(c); err != nil {
				t.Fatal(err)
			}
		}
		w.File(name)
	}
	if _, err = w.Commit(t.Context(), snapshot.Meta{UID: "xyzzy"}); err != nil {
		t.Fatal(err)
	}
	m, err := locked(t, plain, keyDir(t, "default", hexKey(2)+"\n# old\n"+hexKey(1)+"\n")).Manifest(t.Context(), key)
	if err != nil || !m.Encrypted() || m.Meta.UID != "xyzzy" {
		t.Fatalf("manifest: %v", err)
	}
	storagetest.WantImage(t, m, image, s)
	if err := s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true}); err != nil {
		t.Error(err)
	}
	for _, name := range objects(t, plain, "") {
		data := content(t, objectPath(plain, name))
		if bytes.Contains(data, []byte("xyzzy")) || bytes.Contains(data, []byte("pages.img")) {
			t.Errorf("%s tells", name)
		}
	}
	child := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "child"}, m, image)
	if len(child.Packs) != len(m.Packs) || child.Packs[0].ID != m.Packs[0].ID || len(objects(t, plain, "ns/keys/")) != 1 {
		t.Error("the child shares neither packs nor key")
	}
	storagetest.WantImage(t, child, image, s)
}

// TestKeyErrors: without the right key nothing is read or written, and the error says why.
func TestKeyErrors(t *testing.T) {
	plain := storagetest.NewDir(t)
	storagetest.Write(t, locked(t, plain, keyDir(t, "ns", hexKey(1))), key, nil, tinyImage())
	storagetest.Write(t, plain, storage.Key{Namespace: "open", Name: "one"}, nil, tinyImage())
	for name, test := range map[string]struct {
		keys      storage.Keyring
		key       storage.Key
		write, ok bool
	}{
		"none at all":  {nil, key, true, false},
		"wrong key":    {keyDir(t, "ns", hexKey(2)), key, true, false},
		"of another":   {keyDir(t, "other", hexKey(1)), key, false, false},
		"no directory": {keyring.Dir("/nonexistent"), key, false, false},
		"bad file":     {keyDir(t, "ns", "abc"), key, false, false},
		"empty file":   {keyDir(t, "ns", ""), key, false, false},
		"must be, is not": {
			keyDir(t, "default", hexKey(1)+"\nencrypted-only"),
			storage.Key{Namespace: "open", Name: "one"},
			true,
			false,
		},
		"from before":   {keyDir(t, "default", hexKey(1)), storage.Key{Namespace: "open", Name: "one"}, true, true},
		"contradiction": {keyDir(t, "default", hexKey(1)+"\nnone\nencrypted-only"), key, false, false},
		"may be unlocked": {
			keyDir(t, "default", hexKey(1)+"\nnone\n"),
			storage.Key{Namespace: "open", Name: "one"},
			true,
			true,
		},
		"only unlocked":    {keyDir(t, "default", "none"), storage.Key{Namespace: "open", Name: "one"}, true, true},
		"former key alone": {keyDir(t, "ns", "none\n"+hexKey(1)), key, true, true},
	} {
		s := locked(t, plain, test.keys)
		_, err := s.Manifest(t.Context(), test.key)
		if (err == nil) != test.ok || err != nil && (!errors.Is(err, storage.ErrKey) || errors.Is(err, storage.ErrCorrupt)) {
			t.Errorf("%s: read: %v", name, err)
		}
		w, err := s.NewWriter(t.Context(), storage.Key{Namespace: test.key.Namespace, Name: "new"}, storage.WriterOptions{})
		if (err == nil) != test.write || err != nil && !errors.Is(err, storage.ErrKey) {
			t.Errorf("%s: write: %v", name, err)
		}
		if err == nil {
			w.Abort()
		}
	}
}

// TestRewrap: after Rewrap the former key is no longer needed, and no pack and no manifest has changed.
func TestRewrap(t *testing.T) {
	plain := storagetest.NewDir(t)
	image := secretImage()
	m := storagetest.Write(t, locked(t, plain, keyDir(t, "ns", hexKey(1))), key, nil, image)
	manifest := content(t, objectPath(plain, "ns/snapshots/one/manifest"))
	s := locked(t, plain, keyDir(t, "ns", hexKey(2)+"\n"+hexKey(1)))
	for _, want := range []int{1, 0} {
		var seen int64
		r, err := s.Rewrap(t.Context(), storage.RewrapOptions{Progress: func(done, total int64) { seen = done*10 + total }})
		if r != (storage.RewrapResult{Keys: 1, Rewrapped: want}) || seen != 11 || err != nil {
			t.Fatalf("%+v, progress %d, %v", r, seen, err)
		}
	}
	if !bytes.Equal(manifest, content(t, objectPath(plain, "ns/snapshots/one/manifest"))) {
		t.Error("the manifest was changed")
	}
	if _, err := locked(t, plain, keyDir(t, "ns", hexKey(1))).Manifest(t.Context(), key); !errors.Is(err, storage.ErrKey) {
		t.Errorf("with the former key: %v", err)
	}
	s = locked(t, plain, keyDir(t, "ns", string(storagetest.Bytes(2, 32)))) // raw
	again, err := s.Manifest(t.Context(), key)
	if err != nil || again.Digest != m.Digest {
		t.Fatal(err)
	}
	storagetest.WantImage(t, again, image, s)
	if _, err := plain.Rewrap(t.Context(), storage.RewrapOptions{Namespace: "ns"}); !errors.Is(err, storage.ErrKey) {
		t.Errorf("rewrap without keys: %v", err)
	}
}

// TestRewrapDryRun: a dry run says how many data keys are wrapped by a former key, and which cannot be unwrapped. It
// changes nothing.
func TestRewrapDryRun(t *testing.T) {
	plain := storagetest.NewDir(t)
	storagetest.Write(t, locked(t, plain, keyDir(t, "ns", hexKey(1))), key, nil, secretImage())
	object := objectPath(plain, objects(t, plain, "ns/keys/")[0])
	before := content(t, object)
	for _, x := range []struct {
		keys   string
		former int
		ok     bool
	}{
		{hexKey(1), 0, true},
		{hexKey(2) + "\n" + hexKey(1), 1, true},
		{"none\n" + hexKey(1), 1, true},
		{hexKey(2), 0, false},
	} {
		s := locked(t, plain, keyDir(t, "ns", x.keys))
		r, err := s.Rewrap(t.Context(), storage.RewrapOptions{DryRun: true})
		if r != (storage.RewrapResult{Keys: 1, Rewrapped: x.former}) || (err == nil) != x.ok ||
			err != nil && !errors.Is(err, storage.ErrKey) {
			t.Errorf("%.10q: %+v, %v", x.keys, r, err)
		}
	}
	if !bytes.Equal(before, content(t, object)) {
		t.Error("the data key was changed")
	}
}

// TestHostileFormerKey: a snapshot whose parent's data key was made under a former key gets a new one, whether the
// parent's was wrapped anew or not. Its own children share the new one.
func TestHostileFormerKey(t *testing.T) {
	for _, rewrap := range []bool{false, true} {
		plain, image := storagetest.NewDir(t), secretImage()
		storagetest.Write(t, locked(t, plain, keyDir(t, "ns", hexKey(1))), key, nil, image)
		s := locked(t, plain, keyDir(t, "ns", hexKey(2)+"\n"+hexKey(1)))
		if rewrap {
			if _, err := s.Rewrap(t.Context(), storage.RewrapOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		parent, err := s.Manifest(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		child := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "child"}, parent, image)
		if n := len(objects(t, plain, "ns/keys/")); n != 2 {
			t.Errorf("rewrapped %t: %d data keys", rewrap, n)
		}
		if child.Packs[0].ID == parent.Packs[0].ID || child.DigestKey == parent.DigestKey {
			t.Errorf("rewrapped %t: the child shares packs with its parent, or the digest key", rewrap)
		}
		storagetest.WantImage(t, child, image, s)
		next := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "next"}, child, image)
		if n := len(objects(t, plain, "ns/keys/")); n != 2 || next.Packs[0].ID != child.Packs[0].ID {
			t.Errorf("rewrapped %t: %d data keys, and the next one shares no packs", rewrap, n)
		}
	}
}

// TestRewrapPartly: Rewrap goes on with the other keys after a data key that cannot be unwrapped, and after a namespace
// without a key.
func TestRewrapPartly(t *testing.T) {
	plain := storagetest.NewDir(t)
	for ns, by := range map[string]uint64{"ns": 1, "other": 2} {
		k := storage.Key{Namespace: ns, Name: "one"}
		storagetest.Write(t, locked(t, plain, keyDir(t, ns, hexKey(by))), k, nil, secretImage())
	}
	lost := objects(t, plain, "ns/keys/")[0]
	storagetest.Write(t, locked(t, plain, keyDir(t, "ns", hexKey(1))), storage.Key{Namespace: "ns", Name: "two"}, nil,
		secretImage())
	overwrite(t, objectPath(plain, lost), []byte("damaged"))
	s := locked(t, plain, keyDir(t, "ns", hexKey(3)+"\n"+hexKey(1)))
	r, err := s.Rewrap(t.Context(), storage.RewrapOptions{})
	if r.Rewrapped != 1 || !errors.Is(err, storage.ErrCorrupt) || !errors.Is(err, storage.ErrKey) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := locked(t, plain, keyDir(t, "ns", hexKey(3))).Manifest(t.Context(),
		storage.Key{Namespace: "ns", Name: "two"}); err != nil {
		t.Error(err)
	}
}

// TestEncryptedReplicate: a snapshot is replicated without a change, together with its key.
func TestEncryptedReplicate(t *testing.T) {
	keys := keyDir(t, "ns", hexKey(1))
	src, dst := locked(t, storagetest.NewDir(t), keys), locked(t, storagetest.NewDir(t), keys)
	image := secretImage()
	m := storagetest.Write(t, src, key, nil, image)
	for range 2 {
		if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
			t.Fatal(err)
		}
	}
	far, err := dst.Manifest(t.Context(), key)
	if err != nil || far.Digest != m.Digest {
		t.Fatal(err)
	}
	storagetest.WantImage(t, far, image, dst)
}

// TestEncryptedDamage: any flipped bit is found, and no object can replace another one.
func TestEncryptedDamage(t *testing.T) {
	plain := storagetest.NewDir(t)
	keys := keyDir(t, "default", hexKey(1))
	s := locked(t, plain, keys)
	image := storagetest.Image{"pages.img": {
		storagetest.Bytes(1, 100), storagetest.Bytes(2, 100),
		bytes.Repeat([]byte("ab"), 100),
	}}
	m := storagetest.Write(t, s, key, nil, image)
	want := bytes.Join(image["pages.img"], nil)
	for _, name := range objects(t, plain, "ns/") {
		path := objectPath(plain, name)
		good := content(t, path)
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			overwrite(t, path, bad)
			got := make([]byte, len(want))
			m, err := locked(t, plain, keys).Manifest(t.Context(), key)
			if err == nil {
				err = errors.Join(s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true}),
					storage.NewReader(m, s).ReadAt(t.Context(), "pages.img", 0, [][]byte{got}))
			}
			isKey := strings.Contains(name, "/keys/") && errors.Is(err, storage.ErrKey) // the id of the wrapping key
			if !errors.Is(err, storage.ErrCorrupt) && !isKey {
				t.Fatalf("%s, byte %d: %v", name, i, err)
			}
		}
		overwrite(t, path, good)
	}
	swapChunks(t, plain, m)
	err := storage.NewReader(m, s).ReadAt(t.Context(), "pages.img", 0, [][]byte{make([]byte, 100)})
	if !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("chunks swapped: %v", err)
	}
	moveKey(t, s)
}

func swapChunks(t *testing.T, s *storage.Store, m *storage.Manifest) {
	t.Helper()
	a, b := m.Files[0].Chunks[0], m.Files[0].Chunks[1]
	path := objectPath(s, objects(t, s, "ns/packs/")[0])
	data := content(t, path)
	first := bytes.Clone(data[a.Offset : a.Offset+a.Stored])
	copy(data[a.Offset:], data[b.Offset:b.Offset+b.Stored])
	copy(data[b.Offset:], first)
	overwrite(t, path, data)
}

// moveKey moves a namespace's data key to another namespace that has the same key.
func moveKey(t *testing.T, s *storage.Store) {
	t.Helper()
	other := storage.Key{Namespace: "other", Name: "one"}
	storagetest.Write(t, s, other, nil, tinyImage())
	name := objects(t, s, "other/keys/")[0]
	if err := os.Rename(objectPath(s, objects(t, s, "ns/keys/")[0]), objectPath(s, name)); err != nil {
		t.Fatal(err)
	}
	fresh, err := storage.Open(context.Background(), s.Backend(),
		storage.Options{Keyring: keyDir(t, "default", hexKey(1))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Manifest(t.Context(), other); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("key moved: %v", err)
	}
}

// TestParentNotEncrypted: an encrypted snapshot and one that is not share nothing.
func TestParentNotEncrypted(t *testing.T) {
	plain := storagetest.NewDir(t)
	parent := storagetest.Write(t, plain, key, nil, tinyImage())
	s := locked(t, plain, keyDir(t, "ns", hexKey(1)))
	child := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "two"}, parent, tinyImage())
	if child.DigestKey == parent.DigestKey || child.Packs[0].ID == parent.Packs[0].ID {
		t.Error("the encrypted child shares with its parent")
	}
	grandchild := storagetest.Write(t, plain, storage.Key{Namespace: "ns", Name: "three"}, child, tinyImage())
	if grandchild.DigestKey == child.DigestKey || grandchild.Packs[0].ID == child.Packs[0].ID {
		t.Error("the child in the clear shares with its parent")
	}
}

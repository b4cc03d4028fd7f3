package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

var key = storage.Key{Namespace: "ns", Name: "one"}

// tinyImage makes objects of a few hundred bytes.
func tinyImage() storagetest.Image {
	return storagetest.Image{"pages.img": {
		make([]byte, 100), bytes.Repeat([]byte("abc"), 60), storagetest.Bytes(1, 90),
		storagetest.Bytes(2, 50),
	}}
}

// objectPath is where the dir backend keeps an object.
func objectPath(s *storage.Store, name string) string {
	return filepath.Join(strings.TrimPrefix(s.Backend().Location(), "dir:"), filepath.FromSlash(name))
}

func objects(t *testing.T, s *storage.Store, prefix string) (list []string) {
	t.Helper()
	err := s.Backend().List(t.Context(), prefix, func(o storage.ObjectInfo) error {
		list = append(list, o.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func overwrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFlippedBitInManifest(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	path := objectPath(s, "ns/snapshots/one/manifest")
	good := content(t, path)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		overwrite(t, path, bad)
		_, err := s.Manifest(t.Context(), key)
		var c *storage.CorruptError
		if !errors.As(err, &c) || c.Object != "ns/snapshots/one/manifest" || c.Key != key {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

// TestFlippedBitInPack: Verify finds a flipped bit wherever it is, and a reader never returns a wrong byte.
func TestFlippedBitInPack(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	name := objects(t, s, "ns/packs/")[0]
	path := objectPath(s, name)
	good, want := content(t, path), bytes.Join(tinyImage()["pages.img"], nil)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		overwrite(t, path, bad)
		err := s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true})
		var c *storage.CorruptError
		if !errors.As(err, &c) || c.Object != name || c.Key != key {
			t.Fatalf("byte %d: verify: %v", i, err)
		}
		got := make([]byte, len(want))
		err = storage.NewReader(m, s).ReadAt(t.Context(), "pages.img", 0, [][]byte{got})
		// A zstd frame has bits without meaning. If one of these is flipped, the bytes are right.
		if err != nil && !errors.Is(err, storage.ErrCorrupt) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("byte %d: read: %v", i, err)
		}
	}
}

func TestTruncated(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	pack, manifest := objectPath(s, objects(t, s, "ns/packs/")[0]), objectPath(s, "ns/snapshots/one/manifest")
	goodPack, goodManifest := content(t, pack), content(t, manifest)
	for n := range goodManifest {
		overwrite(t, manifest, goodManifest[:n])
		if _, err := s.Manifest(t.Context(), key); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("manifest of %d bytes: %v", n, err)
		}
	}
	r := storage.NewReader(m, s)
	whole := [][]byte{make([]byte, m.Files[0].Size)}
	for n := range goodPack {
		overwrite(t, pack, goodPack[:n])
		verify := s.Verify(t.Context(), m, storage.VerifyOptions{})
		check, read := r.Check(t.Context()), r.ReadAt(t.Context(), "pages.img", 0, whole)
		if !errors.Is(verify, storage.ErrCorrupt) || !errors.Is(check, storage.ErrCorrupt) || read == nil {
			t.Fatalf("pack of %d bytes: verify %v, check %v, read %v", n, verify, check, read)
		}
	}
}

func TestMissingPack(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	if err := s.Backend().Delete(t.Context(), objects(t, s, "ns/packs/")[0]); err != nil {
		t.Fatal(err)
	}
	verify := s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true})
	check := storage.NewReader(m, s).Check(t.Context())
	for what, err := range map[string]error{"verify": verify, "check": check} {
		if !errors.Is(err, storage.ErrCorrupt) || !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMovedManifest: a manifest that was moved to another snapshot's place, or to another namespace, is refused.
func TestMovedManifest(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	data := content(t, objectPath(s, "ns/snapshots/one/manifest"))
	for _, to := range []storage.Key{{Namespace: "ns", Name: "two"}, {Namespace: "other", Name: "one"}} {
		name := to.Namespace + "/snapshots/" + to.Name + "/manifest"
		if err := s.Backend().Create(t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Manifest(t.Context(), to); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestSweepRefuses(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	gone, ok := storage.Key{Namespace: "ns", Name: "gone"}, storage.Key{Namespace: "other", Name: "gone"}
	for _, k := range []storage.Key{gone, ok} {
		storagetest.Write(t, s, k, nil, storagetest.SmallImage(3))
		storagetest.Orphan(t, s, k)
	}
	path := objectPath(s, "ns/snapshots/one/manifest")
	overwrite(t, path, content(t, path)[1:])
	result, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1})
	if !errors.Is(err, storage.ErrCorrupt) || result.Deleted != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	if n := len(objects(t, s, "ns/packs/")); n != 2 {
		t.Errorf("%d packs left in the namespace with an unreadable manifest", n)
	}
}

func TestHostileKeys(t *testing.T) {
	s := storagetest.NewDir(t)
	for _, bad := range []string{
		"", "..", ".", "a/b", "a\x00b", "A", "ä", "a\u0430", "-a", "a-", "a..b",
		strings.Repeat("a", 254), strings.Repeat("a", 300), "a\n",
	} {
		for _, k := range []storage.Key{{Namespace: "ns", Name: bad}, {Namespace: bad, Name: "one"}} {
			_, writer := s.NewWriter(t.Context(), k, storage.WriterOptions{})
			_, manifest := s.Manifest(t.Context(), k)
			_, has := s.Has(t.Context(), k)
			for what, err := range map[string]error{
				"writer": writer, "manifest": manifest, "has": has, "remove": s.Remove(t.Context(), k),
				"replicate": storage.Replicate(t.Context(), s, s, k, nil),
			} {
				if !errors.Is(err, storage.ErrInvalidName) {
					t.Errorf("%.40q: %s: %v", k, what, err)
				}
			}
		}
	}
	k := storage.Key{Namespace: "diapause.json", Name: "one"}
	if _, err := s.Has(t.Context(), k); !errors.Is(err, storage.ErrInvalidName) {
		t.Errorf("the marker as a namespace: %v", err)
	}
	if err := s.List(t.Context(), "..", nil); !errors.Is(err, storage.ErrInvalidName) {
		t.Errorf("list: %v", err)
	}
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Namespace: "../x"}); !errors.Is(err, storage.ErrInvalidName) {
		t.Errorf("sweep: %v", err)
	}
}

func TestOpenOtherFormat(t *testing.T) {
	s := storagetest.NewDir(t)
	for content, kind := range map[string]error{
		`{"product":"diapause","format":1}`: storage.ErrFormat,
		`{"product":"diapause","format":3}`: storage.ErrFormat,
		`{"product":"other","format":1}`:    storage.ErrCorrupt,
		``:                                  storage.ErrCorrupt,
		`{"product":"diapause","format":2,"id":"../x"}`: storage.ErrCorrupt,
	} {
		overwrite(t, objectPath(s, "diapause.json"), []byte(content))
		if _, err := storage.Open(t.Context(), s.Backend(), storage.Options{}); !errors.Is(err, kind) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

package storage_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestFingerprints: in this lineage, a part of each snapshot is unchanged, a part has moved and a part is new. Only the
// new part is stored, and everything is read back as written. All snapshots except the first have fingerprints. If they
// are encrypted, none of that is visible.
func TestFingerprints(t *testing.T) {
	for name, keys := range map[string]storage.Keyring{"plain": nil, "encrypted": keyDir(t, "default", hexKey(1))} {
		t.Run(name, func(t *testing.T) {
			s := locked(t, storagetest.NewDir(t), keys)
			var parent *storage.Manifest
			for i := range uint64(5) {
				key := storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}
				image := storagetest.Image{"pages.img": {
					storagetest.Bytes(1, 60000), storagetest.Bytes(100+i, 3000), make([]byte, 4096),
					storagetest.Bytes(20+i, 7000), storagetest.Bytes(19+i, 7000), storagetest.Bytes(2, 60001),
				}}
				m := storagetest.Write(t, s, key, parent, image)
				storagetest.WantImage(t, m, image, s)
				if n := added(m, parent); parent != nil && n > 10500 {
					t.Errorf("%s stores %d bytes", key, n)
				}
				data, err := os.ReadFile(objectPath(s, "ns/snapshots/"+key.Name+"/manifest"))
				if shown := bytes.Contains(data, []byte("fing")); err != nil || shown != (i > 0 && keys == nil) {
					t.Errorf("%s shows fingerprints: %v, %v", key, shown, err)
				}
				if parent, err = s.Manifest(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// added returns the size of the packs that a snapshot has and its parent does not have.
func added(m, parent *storage.Manifest) (n int64) {
	old := map[storage.PackID]bool{}
	if parent != nil {
		for _, p := range parent.Packs {
			old[p.ID] = true
		}
	}
	for _, p := range m.Packs {
		if !old[p.ID] {
			n += p.Size
		}
	}
	return n
}

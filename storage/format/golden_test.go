package format

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/digest"
)

var update = flag.Bool("update", false, "write testdata/golden anew: only for a new Version")

// golden is a snapshot as a writer has stored it, by the names of its objects.
type golden map[string][]byte

// What the golden snapshots hold.
var (
	goldenFile    = "pages.img"
	goldenRaw     = [][]byte{bytes.Repeat([]byte("zstd "), 800), bytes.Repeat([]byte("s2 "), 1000), noise(3000), nil}
	goldenCodecs  = []Codec{CodecZstd, CodecS2, CodecNone, CodecNone}
	goldenRefs    = []ChunkRef{{0, 2}, {0, 0}}
	goldenWrapper = Secret{7}
	goldenData    = &DataKey{key: Secret{8}, id: idOf(useDataID, Secret{8})}
	goldenSigner  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
)

// zeros is how many zero bytes the last chunk has, which is not stored.
const zeros = 4096

// noise returns bytes that no codec makes shorter.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// write stores the golden snapshot, encrypted by the key unless that is nil.
func write(t *testing.T, key *DataKey) golden {
	t.Helper()
	m := &Manifest{
		Format: Version, DataKey: key, DigestKey: [32]byte{1, 2, 3},
		Meta:  snapshot.Meta{Key: Key{Namespace: "ns", Name: "golden"}, UID: "u", Created: time.Unix(7, 0).UTC()},
		Packs: []Pack{{ID: PackID{9}}},
		Files: []File{{Name: goldenFile, Prints: [][PrintSize]byte{{}, {1}, {2}, {3}}}},
	}
	keyed, pack := digest.New(m.DigestKey), PackHeader(m.Packs[0].ID)
	for i, raw := range goldenRaw {
		c := Chunk{Raw: uint32(len(raw)), Offset: uint32(len(pack)), Digest: keyed.Sum(raw)}
		if raw == nil {
			m.Files[0].Chunks = append(m.Files[0].Chunks, Chunk{Raw: zeros})
			m.Files[0].Size += zeros
			continue
		}
		var stored []byte
		c.Codec, stored = Compress(goldenCodecs[i], make([]byte, 1<<16), raw)
		if c.Codec != goldenCodecs[i] {
			t.Fatalf("chunk %d has codec %v, want %v", i, c.Codec, goldenCodecs[i])
		}
		if key != nil {
			box := append(bytes.Clone(stored), make([]byte, SealSize)...)
			SealChunk(key.PackAEAD(m.Packs[0].ID), m.Packs[0].ID, c.Offset, box[:len(stored)])
			stored = box
		}
		c.Stored = uint32(len(stored))
		pack = append(pack, stored...)
		m.Files[0].Chunks = append(m.Files[0].Chunks, c)
		m.Files[0].Size += int64(len(raw))
	}
	m.Packs[0].Size, m.Packs[0].Digest = int64(len(pack)), digest.OfWhole(pack)
	manifest, err := EncodeSigned(m, goldenSigner)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{"pack": pack, "manifest": manifest}
	m, err = DecodeWith(manifest, unlocks(key))
	if err != nil {
		t.Fatal(err)
	}
	g["workingset"] = EncodeWorkingSet(m, goldenRefs)
	if key != nil {
		g["key"] = key.Wrap("ns", goldenWrapper)
	}
	return g
}

// unlocks knows one data key.
func unlocks(key *DataKey) Unlocker {
	return func(string, KeyID) (*DataKey, error) {
		if key == nil {
			return nil, errors.New("it is not encrypted")
		}
		return key, nil
	}
}

// read returns an error unless the objects hold the golden snapshot.
func (g golden) read(encrypted bool) error {
	var key *DataKey
	if encrypted {
		var err error
		if key, _, err = UnwrapDataKey("ns", goldenData.ID(), g["key"], []Secret{goldenWrapper}); err != nil {
			return err
		}
	}
	m, err := DecodeWith(g["manifest"], unlocks(key))
	if err != nil {
		return err
	}
	if m.Meta.Name != "golden" || m.Encrypted() != encrypted || m.SignedBy() == "" || !m.Fingerprinted() {
		return fmt.Errorf("manifest: %+v", m)
	}
	if reason := CheckPack(m.Packs[0], g["pack"]); reason != "" {
		return fmt.Errorf("pack: %s", reason)
	}
	f, ok := m.File(goldenFile)
	if !ok || len(f.Chunks) != len(goldenRaw) {
		return fmt.Errorf("file: %+v", f)
	}
	o := NewOpener(m)
	for i, raw := range goldenRaw {
		c := f.Chunks[i]
		if raw == nil {
			if c.Stored != 0 || c.Raw != zeros {
				return fmt.Errorf("chunk %d: %+v, want zeros", i, c)
			}
			continue
		}
		got := make([]byte, c.Raw)
		if err := o.Unpack(&c, got, g["pack"][c.Offset:c.Offset+c.Stored]); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		if !bytes.Equal(got, raw) {
			return fmt.Errorf("chunk %d has other bytes", i)
		}
	}
	refs, err := m.DecodeWorkingSet(g["workingset"])
	if err == nil && !reflect.DeepEqual(refs, goldenRefs) {
		err = fmt.Errorf("working set: %v", refs)
	}
	return err
}

// TestGolden: what a writer of this version of the format has stored once can be read for as long as there is that
// version, and so can what is written today.
func TestGolden(t *testing.T) {
	for name, key := range map[string]*DataKey{"plain": nil, "encrypted": goldenData} {
		t.Run(name, func(t *testing.T) {
			if err := write(t, key).read(key != nil); err != nil {
				t.Errorf("written today: %v", err)
			}
			dir := filepath.Join("testdata", "golden", fmt.Sprint(Version), name)
			if *update {
				keep(t, dir, write(t, key))
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			g := make(golden)
			for _, e := range entries {
				if g[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.read(key != nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// keep writes the objects into a directory.
func keep(t *testing.T, dir string, g golden) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range g {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

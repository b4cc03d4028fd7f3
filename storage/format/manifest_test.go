package format

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"diapause.dev/api/snapshot"
)

// example returns a manifest with chunks of every codec.
func example() *Manifest {
	return &Manifest{
		Format: Version,
		Meta: snapshot.Meta{
			Key: Key{Namespace: "ns", Name: "one"}, UID: "u", Created: time.Unix(7, 0).UTC(),
			Parent: &Key{Namespace: "ns", Name: "zero"}, Timeline: []snapshot.Stage{{Name: "pause", Took: 5}},
		},
		DigestKey: [32]byte{1, 2, 3},
		Packs:     []Pack{{ID: PackID{9}, Size: 1000, Digest: [16]byte{4}}, {ID: PackID{8}, Size: 40, Digest: [16]byte{5}}},
		Files: []File{
			{Name: "empty", Chunks: []Chunk{}},
			{Name: "pages.img", Size: 4096 + 10 + 8, Chunks: []Chunk{
				{Raw: 4096},
				{Raw: 10, Stored: 9, Offset: 32, Codec: CodecZstd, Digest: [32]byte{6}},
				{Raw: 8, Stored: 8, Pack: 1, Offset: 32, Codec: CodecNone, Digest: [32]byte{7}},
			}},
		},
	}
}

// fingerprinted returns the example with fingerprints.
func fingerprinted() *Manifest {
	m := example()
	m.Files[0].Prints = [][PrintSize]byte{}
	m.Files[1].Prints = [][PrintSize]byte{{}, {1}, {2}}
	return m
}

func encode(t testing.TB, m *Manifest) []byte {
	t.Helper()
	data, err := EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// seal puts the right digest at the end of an edited manifest.
func seal(body []byte) []byte {
	digest := blake3.Sum256(body)
	return append(bytes.Clone(body), digest[:]...)
}

func body(data []byte) []byte { return bytes.Clone(data[:len(data)-DigestSize]) }

func TestManifestRoundTrip(t *testing.T) {
	for _, m := range []*Manifest{example(), fingerprinted()} {
		data := encode(t, m)
		got, err := DecodeManifest(data)
		if err != nil {
			t.Fatal(err)
		}
		m.Digest = got.Digest
		if !reflect.DeepEqual(got, m) {
			t.Errorf("got  %+v\nwant %+v", got, m)
		}
		if !bytes.Equal(encode(t, got), data) {
			t.Error("encodes differently the second time")
		}
	}
}

func TestManifestSections(t *testing.T) {
	plain := body(encode(t, example()))
	otherVersion := bytes.Clone(plain)
	otherVersion[len(manifestMagic)] = Version - 1
	for _, test := range []struct {
		name string
		body []byte
		kind error
	}{
		{"unknown optional", appendSection(bytes.Clone(plain), "xtra", []byte("new")), nil},
		{"unknown required", appendSection(bytes.Clone(plain), "XTRA", []byte("new")), ErrFormat},
		{"unknown, neither", appendSection(bytes.Clone(plain), "\x00abc", nil), ErrFormat},
		{"twice", appendSection(bytes.Clone(plain), tagKey, make([]byte, 32)), ErrCorrupt},
		{"fingerprints", appendSection(bytes.Clone(plain), tagPrints, make([]byte, 3*PrintSize)), nil},
		{"too few fingerprints", appendSection(bytes.Clone(plain), tagPrints, make([]byte, 2*PrintSize)), ErrCorrupt},
		{"too many fingerprints", appendSection(bytes.Clone(plain), tagPrints, make([]byte, 4*PrintSize)), ErrCorrupt},
		{"half a fingerprint", appendSection(bytes.Clone(plain), tagPrints, make([]byte, 3*PrintSize-8)), ErrCorrupt},
		{"no fingerprints", appendSection(bytes.Clone(plain), tagPrints, nil), ErrCorrupt},
		{"none", plain[:manifestPrefix], ErrCorrupt},
		{"cut", plain[:len(plain)-1], ErrCorrupt},
		{"rest", append(bytes.Clone(plain), 1, 2, 3), ErrCorrupt},
		{"other version", otherVersion, ErrFormat},
		{
			"huge section", append(append(bytes.Clone(plain), "huge"...), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
			ErrCorrupt,
		},
	} {
		_, err := DecodeManifest(seal(test.body))
		if !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestManifestRefused(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"no key":            func(m *Manifest) { m.Meta.Key = Key{} },
		"hostile namespace": func(m *Manifest) { m.Meta.Namespace = "../other" },
		"hostile file":      func(m *Manifest) { m.Files[0].Name = "a\x00b" },
		"long file":         func(m *Manifest) { m.Files[0].Name = string(bytes.Repeat([]byte("a"), 256)) },
		"file twice":        func(m *Manifest) { m.Files[0].Name = m.Files[1].Name },
		"file size":         func(m *Manifest) { m.Files[1].Size++ },
		"negative size":     func(m *Manifest) { m.Files[0].Size = -1 },
		"pack size":         func(m *Manifest) { m.Packs[1].Size = 31 },
		"huge pack":         func(m *Manifest) { m.Packs[1].Size = maxPack + 1 },
		"pack twice":        func(m *Manifest) { m.Packs[1].ID = m.Packs[0].ID },
		"no raw":            func(m *Manifest) { m.Files[1].Chunks[0].Raw = 0 },
		"large raw":         func(m *Manifest) { m.Files[1].Chunks[0].Raw = MaxChunk + 1 },
		"zero in a pack":    func(m *Manifest) { m.Files[1].Chunks[0].Offset = 32 },
		"no such pack":      func(m *Manifest) { m.Files[1].Chunks[1].Pack = 2 },
		"in the header":     func(m *Manifest) { m.Files[1].Chunks[1].Offset = 31 },
		"behind the end":    func(m *Manifest) { m.Files[1].Chunks[2].Offset = 33 },
		"offset overflow":   func(m *Manifest) { m.Files[1].Chunks[2].Offset = 0xffffffff },
		"not shrunk":        func(m *Manifest) { m.Files[1].Chunks[1].Stored = 10 },
		"other length":      func(m *Manifest) { m.Files[1].Chunks[2].Stored = 7 },
		"unknown codec":     func(m *Manifest) { m.Files[1].Chunks[1].Codec = 200 },
		"few fingerprints":  func(m *Manifest) { m.Files[1].Prints = make([][PrintSize]byte, 2) },
		"many fingerprints": func(m *Manifest) { m.Files[0].Prints = make([][PrintSize]byte, 1) },
		"half of the files": func(m *Manifest) {
			m.Files[0].Prints, m.Files[0].Chunks, m.Files[0].Size = nil,
				[]Chunk{{Raw: 1}}, 1
		},
	} {
		m := fingerprinted()
		change(m)
		if _, err := EncodeManifest(m); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// TestManifestUnknownCodec: a chunk of a future codec is not damage.
func TestManifestUnknownCodec(t *testing.T) {
	m := example()
	plain := body(encode(t, m))
	plain = plain[:bytes.Index(plain, []byte(tagChunks))]
	n := countChunks(m.Files)
	table := make([]byte, n*chunkRecord)
	cols := columns(table, n)
	for i := range m.Files[1].Chunks {
		cols.put(i, &m.Files[1].Chunks[i])
	}
	cols.codec[1] = 4
	head := binary.LittleEndian.AppendUint64([]byte{byte(CodecNone)}, uint64(n))
	data := seal(appendSection(plain, tagChunks, append(head, table...)))
	if _, err := DecodeManifest(data); !errors.Is(err, ErrFormat) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// TestManifestBomb: a few bytes cannot claim a table of many, and a table that is nearly all zero is still written in a
// way that can be read.
func TestManifestBomb(t *testing.T) {
	const n = 1 << 20
	frame := encodeFrame(nil, make([]byte, n*chunkRecord))
	b := append(binary.LittleEndian.AppendUint64([]byte{byte(CodecZstd)}, n), frame...)
	allocated := testing.AllocsPerRun(1, func() {
		if _, _, err := unpackTable(b); err == nil {
			t.Error("unpacked")
		}
	})
	if allocated > 20 {
		t.Errorf("%v allocations", allocated)
	}
	m := example()
	f := File{Name: "sparse"}
	for range 20000 {
		f.Chunks = append(f.Chunks, Chunk{Raw: 4096})
		f.Size += 4096
	}
	m.Files = append(m.Files, f)
	got, err := DecodeManifest(encode(t, m))
	if err != nil || got.Stats().ZeroChunks != 20001 {
		t.Errorf("sparse: %v", err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(body(encode(f, example())))
	empty := example()
	empty.Files, empty.Packs = nil, nil
	f.Add(body(encode(f, empty)))
	f.Add(appendSection(body(encode(f, example())), "opti", []byte("x")))
	f.Add(body(encode(f, fingerprinted())))
	signed, err := appendSignature(body(encode(f, example())), testKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(append(bytes.Clone(signed), signed[len(signed)-signSize-sectionPrefix:]...)) // twice
	f.Add(append(bytes.Clone(signed[:len(signed)-1]), signed[len(signed)-1]^1))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := DecodeManifest(data); err == nil {
			t.Fatal("decoded without a digest") // the corpus holds bodies without digests
		}
		m, err := DecodeManifest(seal(data))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		m.Stats()
		if m.Signer.Equal(testKey.Public()) && !bytes.Equal(data, signed) {
			t.Fatal("signed by a key that has never signed this")
		}
		again, err := DecodeManifest(encode(t, m))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(m.Files, again.Files) || !reflect.DeepEqual(m.Packs, again.Packs) {
			t.Fatal("encodes to another manifest")
		}
	})
}

// FuzzChunk decodes hostile stored bytes into memory beside a canary.
func FuzzChunk(f *testing.F) {
	raw := bytes.Repeat([]byte("abcdefgh"), 500)
	for _, data := range [][]byte{raw, raw[:1], bytes.Repeat([]byte{0, 1, 2, 3, 5, 8}, 3000)} {
		_, frame := Compress(CodecZstd, nil, data)
		_, block := Compress(CodecS2, nil, data)
		f.Add(uint8(CodecZstd), uint32(len(data)), frame)
		f.Add(uint8(CodecS2), uint32(len(data)), block)
		f.Add(uint8(CodecNone), uint32(len(data)), data)
	}
	f.Fuzz(func(t *testing.T, codec uint8, size uint32, stored []byte) {
		size %= 1<<16 + 1
		memory := bytes.Repeat([]byte{0xa5}, int(size)+64)
		err := Decompress(Codec(codec), memory[:size], stored)
		if !bytes.Equal(memory[size:], bytes.Repeat([]byte{0xa5}, 64)) {
			t.Fatal("wrote behind its buffer")
		}
		if err == nil && Codec(codec) == CodecNone && !bytes.Equal(memory[:size], stored) {
			t.Fatal("other bytes than stored")
		}
	})
}

// FuzzSealedManifest opens hostile content that is sealed with the right key, as a writer of the namespace could make
// it.
func FuzzSealedManifest(f *testing.F) {
	l := NewDataKey()
	unlock := func(string, KeyID) (*DataKey, error) { return l, nil }
	salt := make([]byte, saltSize)
	before := append([]byte(manifestMagic), Version, 0, 0, 0)
	before = appendSection(before, tagName, []byte(`{"namespace":"ns","name":"one"}`))
	before = appendSection(before, tagLock, append(l.id[:], salt...))
	before = appendSection(before, tagPacks, encodePacks(example().Packs))
	seed := sealedExample(l)
	f.Add(appendContent(nil, seed, []byte(`{"namespace":"ns","name":"one"}`)), encode(f, seed))
	signed, err := EncodeSigned(seed, testKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil), body(signed))
	seed.Files = fingerprinted().Files
	f.Add(appendContent(nil, seed, []byte(`{"namespace":"ns","name":"one"}`)), encode(f, example()))
	f.Fuzz(func(t *testing.T, content, outside []byte) {
		box := l.manifestAEAD(salt).Seal(nil, zeroNonce, content, before)
		for _, data := range [][]byte{seal(appendSection(bytes.Clone(before), tagSeal, box)), seal(outside)} {
			m, err := DecodeWith(data, unlock)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
				t.Fatalf("error of no kind: %v", err)
			}
			if err == nil && CheckKey(m.Meta.Key) != nil {
				t.Fatal("nobody's")
			}
		}
	})
}

// testKey signs the seeds of fuzz targets.
var testKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func sealedExample(l *DataKey) *Manifest {
	m := example()
	m.DataKey = l
	for i := range m.Files[1].Chunks {
		if c := &m.Files[1].Chunks[i]; c.Codec != CodecZero {
			c.Stored += SealSize
		}
		m.Packs[0].Size, m.Packs[1].Size = 1000, 56
	}
	return m
}

// TestSealedManifest: an encrypted manifest needs its key. Without the key it reveals only whose it is.
func TestSealedManifest(t *testing.T) {
	l := NewDataKey()
	m := sealedExample(l)
	data := encode(t, m)
	if _, err := DecodeManifest(data); !errors.Is(err, ErrKey) || errors.Is(err, ErrCorrupt) {
		t.Errorf("without a key: %v", err)
	}
	env, err := OpenEnvelope(data)
	if err != nil || env.Key != m.Meta.Key || len(env.Packs) != 2 || *env.Lock != l.id {
		t.Errorf("envelope: %+v, %v", env, err)
	}
	got, err := DecodeWith(data, func(string, KeyID) (*DataKey, error) { return l, nil })
	if err != nil {
		t.Fatal(err)
	}
	m.Digest = got.Digest
	if !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v", got)
	}
	for name, bad := range map[string][]byte{
		"section behind": appendSection(body(data), "xtra", nil),
		"meta beside": append(appendSection(body(data)[:manifestPrefix:manifestPrefix], tagMeta, []byte("{}")),
			body(data)[manifestPrefix:]...),
		"other name":  bytes.Replace(body(data), []byte(`"one"`), []byte(`"two"`), 1),
		"other pack":  bytes.Replace(body(data), []byte{9, 0, 0, 0}, []byte{7, 0, 0, 0}, 1),
		"other packs": bytes.Replace(body(data), []byte(tagPacks), []byte("pack"), 1),
	} {
		_, err := DecodeWith(seal(bad), func(string, KeyID) (*DataKey, error) { return l, nil })
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzWorkingSet reads hostile working sets of a small manifest.
func FuzzWorkingSet(f *testing.F) {
	m := example()
	m.Digest = [DigestSize]byte{1}
	f.Add(EncodeWorkingSet(m, []ChunkRef{{1, 0}, {1, 2}})[:setPrefix+16])
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := decodeWorkingSet(m, seal(data))
		if err == nil && m.CheckRefs(chunks) != nil {
			t.Fatal("a chunk that does not exist")
		}
		_, _ = decodeWorkingSet(m, data)
		_, _ = decodeWorkingSet(sealedExample(NewDataKey()), data)
	})
}

// FuzzPack checks hostile packs against a manifest, and unpacks hostile encrypted chunks.
func FuzzPack(f *testing.F) {
	m := sealedExample(NewDataKey())
	o := NewOpener(m)
	pack := append(PackHeader(m.Packs[1].ID), make([]byte, 8+SealSize)...)
	f.Add(pack)
	f.Add(pack[:PackHeaderSize])
	f.Fuzz(func(t *testing.T, data []byte) {
		if reason := CheckPack(Pack{ID: m.Packs[1].ID, Size: 56, Digest: [16]byte{5}}, data); reason == "" {
			t.Fatal("sound")
		}
		memory := bytes.Repeat([]byte{0xa5}, 10+64)
		for i := range m.Files[1].Chunks {
			c := &m.Files[1].Chunks[i]
			if c.Codec == CodecZero || int(c.Offset) > len(data) {
				continue
			}
			if err := o.Unpack(c, memory[:c.Raw], data[c.Offset:]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unpacked: %v", err)
			}
			if !bytes.Equal(memory[10:], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Fatal("wrote behind its buffer")
			}
		}
	})
}

func TestCodec(t *testing.T) {
	for _, codec := range []Codec{CodecNone, CodecZstd, CodecS2} {
		for _, size := range []int{1, 100, 4096, MaxChunk} {
			raw := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			used, stored := Compress(codec, nil, raw)
			got := make([]byte, size)
			if err := Decompress(used, got, stored); err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%d bytes, %s: %v", size, codec, err)
			}
			if wantSmaller := size >= 100 && codec != CodecNone; wantSmaller != (used == codec && codec != CodecNone) {
				t.Errorf("%d bytes in %s: stored as %s", size, codec, used)
			}
		}
	}
}

// TestMaxChunks: a manifest with MaxChunks chunks can be encoded, even if nothing of its table compresses.
func TestMaxChunks(t *testing.T) {
	const room = MaxManifest - maxMeta - 1<<20
	if most := MaxChunks * (chunkRecord + PrintSize); most > room || most+chunkRecord+PrintSize <= room {
		t.Errorf("%d chunks take %d bytes of %d", MaxChunks, most, room)
	}
	if MaxChunks*chunkRecord > maxTable {
		t.Error("the table is larger than allowed")
	}
}

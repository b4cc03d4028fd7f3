package bitrot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/storagetest"
)

// positions is how many bits are flipped in each store, one after the other.
const positions = 300

// patient is a store whose objects are damaged, and what is known of it.
type patient struct {
	path    string
	options storage.Options
	images  map[storage.Key]storagetest.Image
	objects map[string][]byte        // content by name
	users   map[string][]storage.Key // snapshots that need an object, by its name
}

// variants are the stores that are damaged.
var variants = map[string]storage.Options{
	"encrypted": {Keyring: oneKey{}},
	"default":   {},
	"none":      {Codec: storage.CodecNone},
	"s2":        {Codec: storage.CodecS2},
	"zstd":      {Codec: storage.CodecZstd},
}

// oneKey is a keyring with one key for all.
type oneKey struct{}

// Keys implements storage.Keyring.
func (oneKey) Keys(string) (storage.Keys, error) {
	return storage.Keys{Current: &storage.Secret{1, 2, 3}}, nil
}

func TestFlippedBits(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t, variants[name])
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			kinds, harmless := map[string]int{}, 0
			for range positions {
				object, at, bit := p.position(r)
				kinds[kind(object)]++
				detected, err := p.flip(t.Context(), object, at, bit)
				if err != nil {
					t.Fatalf("seed %d: %s: bit %d of byte %d of %d: %v", seed, object, bit, at, len(p.objects[object]), err)
				}
				if !detected {
					harmless++
				}
			}
			t.Logf("seed %d: %d flipped bits in %v, %d of them without any effect", seed, positions, kinds, harmless)
		})
	}
}

// newPatient makes a store with a lineage of three snapshots, and one in another namespace.
func newPatient(t *testing.T, o storage.Options) *patient {
	t.Helper()
	p := &patient{
		path: filepath.Join(t.TempDir(), "store"), options: o, images: map[storage.Key]storagetest.Image{},
		users: map[string][]storage.Key{},
	}
	s, closeStore, err := p.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore()
	image := smallImage(1)
	var parent *storage.Manifest
	for i, name := range []string{"one", "two", "three"} {
		image = maps.Clone(image)
		image["pages.img"] = slices.Clone(image["pages.img"])
		image["pages.img"][2], image["pages.img"][5] = storagetest.Bytes(uint64(100+i), 4096),
			storagetest.Bytes(uint64(200+i), 3000)
		parent = p.write(t, s, storage.Key{Namespace: "ns", Name: name}, parent, image)
	}
	p.write(t, s, storage.Key{Namespace: "other", Name: "one"}, nil, smallImage(2))
	if p.objects, err = contents(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for name := range p.objects {
		for key := range p.images {
			if kind(name) == "keys" && strings.HasPrefix(name, key.Namespace+"/") { // the lineage has one data key
				p.users[name] = append(p.users[name], key)
			}
		}
	}
	return p
}

// smallImage has chunks of every kind: zero, compressible, not compressible, repeated, one byte.
func smallImage(seed uint64) storagetest.Image {
	noise := storagetest.Bytes(seed, 3000)
	return storagetest.Image{
		"checkpoint.img": {noise, bytes.Repeat([]byte("kernel state "), 300)},
		"pages.img": {
			make([]byte, 4096), bytes.Repeat(noise[:64], 64), storagetest.Bytes(seed+1, 4096),
			{byte(seed) | 1},
			noise, storagetest.Bytes(seed+2, 9000),
		},
	}
}

func (p *patient) write(t *testing.T, s *storage.Store, key storage.Key, parent *storage.Manifest,
	image storagetest.Image,
) *storage.Manifest {
	t.Helper()
	m := storagetest.Write(t, s, key, parent, image)
	p.images[key] = image
	for _, pack := range m.Packs {
		name := key.Namespace + "/packs/" + pack.ID.String()
		p.users[name] = append(p.users[name], key)
	}
	if err := s.PutWorkingSet(t.Context(), m, workingSet); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest", "workingset"} {
		p.users[key.Namespace+"/snapshots/"+key.Name+"/"+name] = []storage.Key{key}
	}
	return m
}

func (p *patient) open(ctx context.Context) (*storage.Store, func(), error) {
	b, err := dir.Open(p.path)
	if err != nil {
		return nil, nil, err
	}
	s, err := storage.Open(ctx, b, p.options)
	if err != nil {
		_ = b.Close() // nothing was written
		return nil, nil, err
	}
	return s, func() { _ = b.Close() }, nil
}

// contents reads all objects.
func contents(ctx context.Context, s *storage.Store) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := s.Backend().List(ctx, "", func(o storage.ObjectInfo) error {
		data := make([]byte, o.Size)
		all[o.Name] = data
		return s.Backend().ReadAt(ctx, o.Name, data, 0)
	})
	return all, err
}

// kind is what an object is, by its name.
func kind(object string) string {
	if parts := strings.Split(object, "/"); len(parts) == 3 {
		return parts[1] // packs, keys
	}
	return path.Base(object)
}

// position picks a bit: half of them evenly over all bytes, half evenly over the kinds of objects, for
// the small ones.
func (p *patient) position(r *rand.Rand) (object string, at, bit int) {
	names := slices.Sorted(maps.Keys(p.objects))
	bit = r.IntN(8)
	if r.IntN(2) == 0 {
		by := map[string][]string{}
		for _, n := range names {
			by[kind(n)] = append(by[kind(n)], n)
		}
		some := by[slices.Sorted(maps.Keys(by))[r.IntN(len(by))]]
		object = some[r.IntN(len(some))]
		return object, r.IntN(len(p.objects[object])), bit
	}
	total := 0
	for _, n := range names {
		total += len(p.objects[n])
	}
	at = r.IntN(total)
	for _, n := range names {
		if at < len(p.objects[n]) {
			return n, at, bit
		}
		at -= len(p.objects[n])
	}
	panic("unreachable: at is less than the sum of all lengths")
}

// flip flips a bit, looks, and flips it back. It reports whether anything noticed.
func (p *patient) flip(ctx context.Context, object string, at, bit int) (detected bool, err error) {
	bad := bytes.Clone(p.objects[object])
	bad[at] ^= 1 << bit
	file := filepath.Join(p.path, filepath.FromSlash(object))
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, p.objects[object], 0o600)) }()
	s, closeStore, err := p.open(ctx)
	if err != nil {
		return true, wantDamage(err)
	}
	defer closeStore()
	for key, image := range p.images {
		found, err := p.examine(ctx, s, object, key, image)
		if err != nil {
			return false, err
		}
		detected = detected || found
	}
	return detected, nil
}

// wantDamage returns an error that does not say that something is damaged. A data key that has been
// changed is not told from one that is wrapped under another key.
func wantDamage(err error) error {
	if errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrFormat) || errors.Is(err, storage.ErrKey) {
		return nil
	}
	return fmt.Errorf("not told as damage: %w", err)
}

// examine reads and verifies one snapshot of a store in which an object is damaged.
func (p *patient) examine(ctx context.Context, s *storage.Store, object string, key storage.Key,
	image storagetest.Image,
) (bool, error) {
	hurt := slices.Contains(p.users[object], key)
	m, err := s.Manifest(ctx, key)
	if err != nil {
		return true, named(err, object, key, hurt)
	}
	if hurt && kind(object) == "manifest" {
		return false, errors.New("a damaged manifest was taken for sound")
	}
	if hurt && kind(object) == "workingset" {
		return p.examineWorkingSet(ctx, s, object, m)
	}
	verify := s.Verify(ctx, m, storage.VerifyOptions{ReadData: true})
	switch {
	case verify != nil:
		if err := named(verify, object, key, hurt); err != nil {
			return true, fmt.Errorf("verify: %w", err)
		}
	case hurt:
		return false, fmt.Errorf("verify does not find it in %s", key)
	}
	return verify != nil, readRight(ctx, s, m, image)
}

// workingSet is that of every snapshot.
var workingSet = []storage.ChunkRef{{File: 1, Index: 3}, {File: 0, Index: 1}, {File: 1, Index: 0}}

// examineWorkingSet reads a working set that is damaged: it only says what to fetch first, so one that
// is not found is as good as one that is found to be damaged.
func (p *patient) examineWorkingSet(ctx context.Context, s *storage.Store, object string,
	m *storage.Manifest,
) (bool, error) {
	got, err := s.WorkingSet(ctx, m)
	switch {
	case err == nil && slices.Equal(got, workingSet):
		return false, nil
	case err == nil:
		return false, errors.New("a damaged working set was taken for sound")
	case errors.Is(err, storage.ErrNotFound):
		return true, nil
	}
	return true, named(err, object, m.Meta.Key, true)
}

// named checks that an error names the object and the snapshot, which must need it.
func named(err error, object string, key storage.Key, hurt bool) error {
	var c *storage.CorruptError
	switch {
	case !hurt:
		return fmt.Errorf("%s is not hurt: %w", key, err)
	case !errors.As(err, &c):
		return wantDamage(err)
	case c.Object != object || c.Key != key:
		return fmt.Errorf("names %q and %s: %w", c.Object, c.Key, err)
	}
	return nil
}

// readRight reads all of a snapshot, chunk by chunk and as a whole: what is read without an error is
// what was written.
func readRight(ctx context.Context, s *storage.Store, m *storage.Manifest, image storagetest.Image) error {
	for file, chunks := range image {
		r := storage.NewReader(m, s)
		defer r.Close() // nothing was written
		var off int64
		for _, want := range chunks {
			if err := readPiece(ctx, r, file, off, want); err != nil {
				return err
			}
			off += int64(len(want))
		}
		if err := readPiece(ctx, r, file, 0, bytes.Join(chunks, nil)); err != nil {
			return err
		}
	}
	return nil
}

func readPiece(ctx context.Context, r *storage.Reader, file string, off int64, want []byte) error {
	got := make([]byte, len(want))
	err := r.ReadAt(ctx, file, off, [][]byte{got})
	if err != nil {
		return wantDamage(err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: wrong bytes were read at %d", file, off)
	}
	return nil
}

package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/storage/failpoint"
)

// Options of a Store.
type Options struct {
	Logger *slog.Logger // nil: slog.Default()
	Codec  Codec        // of the chunks written; CodecAuto: whichever is fastest, chunk by chunk

	// Spool says that what is written is going to be copied to another store: with CodecAuto chunks are
	// then made smaller even where it would be faster to write them as they are.
	Spool bool

	// Keyring, if set, says how snapshots are encrypted; without it they are not.
	Keyring Keyring

	// Cache, if set, is where Readers look before they read from the backend. It may be shared by
	// stores of the same content.
	Cache PackCache
}

// PackCache keeps what is read of packs nearer than the store is. It need not be trusted with what
// it returns: chunks are checked after it. Implementations are safe for concurrent use.
type PackCache interface {
	// ReadAt fills p with the bytes from off on of an object of size bytes, which never changes. What
	// it does not have it gets by fetch, which is called any number of times, for any ranges of the
	// object, while ReadAt runs. An error of fetch is returned as it is.
	ReadAt(ctx context.Context, object string, size int64, p []byte, off int64, fetch func(ctx context.Context, p []byte, off int64) error) error

	// Drop forgets a range, which turned out to be wrong.
	Drop(object string, off, n int64)
}

// Store keeps snapshots in a Backend. It is safe for concurrent use; it holds no state of its own
// beyond the backend but measurements and keys, so that any number of stores, in any number of processes,
// may be open over one place.
type Store struct {
	backend Backend
	log     *slog.Logger
	codec   Codec
	spool   bool
	cache   PackCache // or nil
	keyring Keyring   // or nil

	wire     wire
	link     link
	unlocked unlocked
}

// markerContent is what diapause.json says.
type markerContent struct {
	Product string `json:"product"`
	Format  int    `json:"format"`
}

const maxMarker = 64 << 10

// Open opens the store in b, and makes b a store if it is none yet. A store of another format is
// refused with ErrFormat. The backend stays the caller's, who closes it last.
func Open(ctx context.Context, b Backend, o Options) (*Store, error) {
	s := &Store{backend: b, log: o.Logger, codec: o.Codec, spool: o.Spool, cache: o.Cache, keyring: o.Keyring}
	if o.Codec > CodecS2 {
		return nil, fmt.Errorf("open store %s: %w: %s", b.Location(), ErrFormat, o.Codec)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	err := s.checkMarker(ctx)
	if errors.Is(err, ErrNotFound) {
		if err = s.createMarker(ctx); err == nil || errors.Is(err, ErrExists) {
			err = s.checkMarker(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", b.Location(), err)
	}
	return s, nil
}

func (s *Store) createMarker(ctx context.Context) error {
	data, err := json.Marshal(markerContent{Product: "diapause", Format: Format})
	if err != nil {
		return err
	}
	data = append(data, '\n')
	return s.backend.Create(ctx, marker, bytes.NewReader(data), int64(len(data)))
}

func (s *Store) checkMarker(ctx context.Context) error {
	data, err := s.readAll(ctx, marker, maxMarker)
	if err != nil {
		return err
	}
	var c markerContent
	if err := json.Unmarshal(data, &c); err != nil || c.Product != "diapause" {
		return &CorruptError{Object: marker, Reason: "not a store's", Err: err}
	}
	if c.Format != Format {
		return fmt.Errorf("%w: store of version %d, this is version %d", ErrFormat, c.Format, Format)
	}
	return nil
}

// readAll reads a whole object, which must not be longer than max bytes.
func (s *Store) readAll(ctx context.Context, name string, max int64) ([]byte, error) {
	began := s.link.begin()
	data, err := s.backend.ReadAll(ctx, name, max)
	s.link.end(began, len(data), err)
	if errors.Is(err, ErrTooLarge) {
		return nil, &CorruptError{Object: name, Reason: "not of this store", Err: err}
	}
	return data, err
}

// Backend returns the backend that the store was opened with.
func (s *Store) Backend() Backend { return s.backend }

// Manifest reads and checks a snapshot's manifest. A snapshot that does not exist is ErrNotFound; a
// manifest that is damaged, or is another snapshot's, is a CorruptError.
func (s *Store) Manifest(ctx context.Context, key Key) (*Manifest, error) {
	m, _, err := s.readManifest(ctx, key)
	return m, err
}

// readManifest returns the manifest and the very bytes it was decoded from.
func (s *Store) readManifest(ctx context.Context, key Key) (*Manifest, []byte, error) {
	if err := checkKey(key); err != nil {
		return nil, nil, err
	}
	name := manifestName(key)
	data, err := s.readAll(ctx, name, maxManifest)
	if err != nil {
		return nil, nil, fmt.Errorf("read manifest of %s: %w", key, err)
	}
	m, err := s.decode(ctx, data)
	if err != nil {
		var c *CorruptError
		if errors.As(err, &c) {
			c.Object, c.Key = cmp.Or(c.Object, name), key // it may be the data key
		}
		return nil, nil, fmt.Errorf("read manifest of %s: %w", key, err)
	}
	if m.Meta.Key != key {
		return nil, nil, &CorruptError{Object: name, Key: key, Reason: fmt.Sprintf("the manifest is that of %s", m.Meta.Key)}
	}
	return m, data, nil
}

// decode is DecodeManifest with the store's keys.
func (s *Store) decode(ctx context.Context, data []byte) (*Manifest, error) {
	m, err := decode(data, func(namespace string, id keyID) (*lock, error) { return s.unlock(ctx, namespace, id) })
	if err != nil || m.lock != nil {
		return m, err
	}
	keys, err := s.keysOf(m.Meta.Namespace)
	if err == nil && !keys.Plain {
		err = fmt.Errorf("%w: the snapshot is not encrypted, and namespace %s must be", ErrKey, m.Meta.Namespace)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// manifestDigest reads the digest that stands at a manifest's end, unchecked: enough to tell
// whether a manifest is the one that is at hand.
func (s *Store) manifestDigest(ctx context.Context, key Key) (digest [digestSize]byte, err error) {
	info, err := s.backend.Stat(ctx, manifestName(key))
	if err != nil {
		return digest, err
	}
	if info.Size < digestSize {
		return digest, ErrTruncated
	}
	return digest, s.backend.ReadAt(ctx, manifestName(key), digest[:], info.Size-digestSize)
}

// Has reports whether the snapshot exists, without reading its manifest.
func (s *Store) Has(ctx context.Context, key Key) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	_, err := s.backend.Stat(ctx, manifestName(key))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Entry is a snapshot as a listing shows it.
type Entry struct {
	Key      Key
	Modified time.Time // when its manifest was written, by the backend's clock
	Size     int64     // of the manifest, in bytes
}

// List calls fn once for each snapshot of a namespace, or of all of them when namespace is "", in
// no particular order. No manifest is read: a damaged one is listed like any other. An error of fn
// ends the listing and is returned.
func (s *Store) List(ctx context.Context, namespace string, fn func(Entry) error) error {
	prefix := ""
	if namespace != "" {
		if err := checkNamespace(namespace); err != nil {
			return err
		}
		prefix = snapshotsDir(namespace)
	}
	return s.backend.List(ctx, prefix, func(o ObjectInfo) error {
		key, ok := parseManifestName(o.Name)
		if !ok {
			return nil
		}
		return fn(Entry{Key: key, Modified: o.Modified, Size: o.Size})
	})
}

// Remove removes a snapshot: its manifest first, with which it ceases to exist, then what else is
// kept beside it. Its packs stay until a Sweep finds that nothing names them. A snapshot that does
// not exist is ErrNotFound.
func (s *Store) Remove(ctx context.Context, key Key) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.backend.Delete(ctx, manifestName(key)); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", key, err)
	}
	failpoint.ManifestRemoved.Hit()
	err := s.backend.List(ctx, snapshotDir(key), func(o ObjectInfo) error {
		if o.Name == manifestName(key) {
			return nil // of a snapshot made anew meanwhile
		}
		if err := s.backend.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove snapshot %s: its manifest is gone, objects beside it may be left: %w", key, err)
	}
	failpoint.RestRemoved.Hit()
	return nil
}

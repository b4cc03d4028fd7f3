package storage

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/storage/format"
)

// Options of a Store.
type Options struct {
	Logger *slog.Logger // nil: slog.Default()
	Codec  Codec        // of the chunks written; CodecAuto: whichever is fastest, chunk by chunk

	// Spool says that snapshots will be copied to another store. With CodecAuto, chunks are then compressed even where it
	// would be faster to write them as they are.
	Spool bool

	// Identity, if set, is the identity that the store must have: see Store.Identity. Then no new store is made where the
	// real one is only not mounted.
	Identity string

	// Keyring, if set, says how snapshots are encrypted; without it they are not.
	Keyring Keyring

	// SigningKey, if set, signs the manifests of new snapshots. Copies of snapshots keep their signatures, or have none.
	SigningKey ed25519.PrivateKey

	// Trusted, unless it is empty, holds the keys whose snapshots may be started from: see Store.TrustedManifest. No chunk
	// of another parent is used. Everything else treats all snapshots alike.
	Trusted []ed25519.PublicKey

	// Cache, if set, is where Readers look before they read from the backend. Stores with the same content may share it.
	Cache PackCache
}

// PackCache keeps data of packs closer than the store. It need not be trusted, because chunks are checked after it.
// Implementations are safe for concurrent use.
type PackCache interface {
	// ReadAt fills p with the bytes from off on of an object of size bytes, which never changes. It gets missing data by
	// fetch. While it runs, it may call fetch any number of times, for any ranges of the object. It returns an error of
	// fetch unchanged.
	ReadAt(ctx context.Context, object string, size int64, p []byte, off int64,
		fetch func(ctx context.Context, p []byte, off int64) error) error

	// Drop forgets a range that turned out to be wrong, or was deleted.
	Drop(object string, off, n int64)
}

// Store keeps snapshots in a Backend. It is safe for concurrent use. Beside the backend it has only measurements, keys
// and the content of immutable objects. So any number of stores, in any number of processes, may be open at one place.
type Store struct {
	backend Backend
	log     *slog.Logger
	codec   Codec
	spool   bool
	cache   PackCache // or nil
	keyring Keyring   // or nil

	signingKey ed25519.PrivateKey  // or nil
	trusted    []ed25519.PublicKey // none: all

	identity string

	writes   writeSpeed
	reads    readSpeed
	unlocked unlocked
	names    names
	clock    clock
}

// Open opens the store in b. If b is not a store yet, Open makes it one. But if Options.Identity is set, a missing
// store, or another one, is ErrIdentity. A store of another format is ErrFormat. The caller keeps ownership of b, and
// closes it last.
func Open(ctx context.Context, b Backend, o Options) (*Store, error) {
	s := &Store{
		backend: b, log: o.Logger, codec: o.Codec, spool: o.Spool, cache: o.Cache, keyring: o.Keyring,
		clock: machineClock,
	}
	if o.Codec > CodecS2 {
		return nil, fmt.Errorf("open store %s: %w: %s", b.Location(), ErrFormat, o.Codec)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := s.setKeys(&o); err != nil {
		return nil, fmt.Errorf("open store %s: %w", b.Location(), err)
	}
	if err := s.identify(ctx, o.Identity); err != nil {
		return nil, fmt.Errorf("open store %s: %w", b.Location(), err)
	}
	return s, nil
}

// readAll reads a whole object, which must not be longer than max bytes.
func (s *Store) readAll(ctx context.Context, name string, max int64) ([]byte, error) {
	began := s.reads.begin()
	data, err := s.backend.ReadAll(ctx, name, max)
	s.reads.end(began, len(data), err)
	if errors.Is(err, ErrTooLarge) {
		return nil, &CorruptError{Object: name, Reason: "not of this store", Err: err}
	}
	return data, err
}

// Probe returns nil if the store answers, or else why it cannot be read now. It reads one small object, and makes
// nothing. It does not check which store answers: that an object does not exist is an answer, too.
func (s *Store) Probe(ctx context.Context) error {
	if _, err := s.readAll(ctx, format.Marker, maxMarker); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("probe store %s: %w", s.backend.Location(), err)
	}
	return nil
}

// Backend returns the backend that the store was opened with.
func (s *Store) Backend() Backend { return s.backend }

// Manifest reads and checks a snapshot's manifest. If the snapshot does not exist, the error is ErrNotFound. If the
// manifest is damaged, or is another snapshot's, the error is a CorruptError.
func (s *Store) Manifest(ctx context.Context, key Key) (*Manifest, error) {
	m, _, err := s.readManifest(ctx, key)
	return m, err
}

// readManifest returns the manifest and the exact bytes from which it was decoded.
func (s *Store) readManifest(ctx context.Context, key Key) (*Manifest, []byte, error) {
	if err := format.CheckKey(key); err != nil {
		return nil, nil, err
	}
	name := format.ManifestName(key)
	data, err := s.readAll(ctx, name, format.MaxManifest)
	if err != nil {
		return nil, nil, fmt.Errorf("read manifest of %s: %w", key, err)
	}
	m, err := s.decode(ctx, data)
	if err != nil {
		var c *CorruptError
		if errors.As(err, &c) {
			c.Object, c.Key = cmp.Or(c.Object, name), key // Object may already name the data key
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
	m, err := format.DecodeWith(data, func(namespace string, id format.KeyID) (*format.DataKey, error) {
		return s.unlock(ctx, namespace, id)
	})
	if err != nil || m.DataKey != nil {
		return m, err
	}
	if err := s.checkPlain(m); err != nil {
		return nil, err
	}
	return m, nil
}

// manifestDigest reads the digest at the end of a manifest, and does not check it. That suffices to tell whether the
// store has a given manifest.
func (s *Store) manifestDigest(ctx context.Context, key Key) (digest [format.DigestSize]byte, err error) {
	info, err := s.backend.Stat(ctx, format.ManifestName(key))
	if err != nil {
		return digest, err
	}
	if info.Size < format.DigestSize {
		return digest, ErrTruncated
	}
	return digest, s.backend.ReadAt(ctx, format.ManifestName(key), digest[:], info.Size-format.DigestSize)
}

// Has reports whether the snapshot exists, without reading its manifest.
func (s *Store) Has(ctx context.Context, key Key) (bool, error) {
	if err := format.CheckKey(key); err != nil {
		return false, err
	}
	_, err := s.backend.Stat(ctx, format.ManifestName(key))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Listed is a snapshot as a listing shows it.
type Listed struct {
	Key      Key
	Modified time.Time // when its manifest was written, by the backend's clock
	Size     int64     // of the manifest, in bytes
}

// List calls fn once for each snapshot of a namespace, or of all namespaces if namespace is "", in no particular order.
// It reads no manifest, so it also lists snapshots whose manifest is damaged. An error of fn ends the listing and is
// returned.
func (s *Store) List(ctx context.Context, namespace string, fn func(Listed) error) error {
	prefix := ""
	if namespace != "" {
		if err := format.CheckNamespace(namespace); err != nil {
			return err
		}
		prefix = format.SnapshotsDir(namespace)
	}
	return s.backend.List(ctx, prefix, func(o ObjectInfo) error {
		key, ok := format.ParseManifestName(o.Name)
		if !ok {
			return nil
		}
		return fn(Listed{Key: key, Modified: o.Modified, Size: o.Size})
	})
}

package storage

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
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
//
// A Store is made of pieces. Each has its own state and the methods of one subject, and knows nothing of the Store. All
// work on the store's objects. What needs several pieces is a method of the Store.
type Store struct {
	*identity   // which store it is
	*manifests  // which snapshots there are: reading and listing
	*dataKeys   // how they are encrypted
	*collector  // removing and sweeping
	marks       // which snapshots are damaged
	workingSets // what restored sandboxes ask for first
	notes       // what clusters have noted

	objects *objects
	claims  *claims
	writing writing
}

// writing is how a store writes new snapshots.
type writing struct {
	codec      Codec
	spool      bool
	signingKey ed25519.PrivateKey // or nil
}

// Open opens the store in b. If b is not a store yet, Open makes it one. But if Options.Identity is set, a missing
// store, or another one, is ErrIdentity. A store of another format is ErrFormat. The caller keeps ownership of b, and
// closes it last.
func Open(ctx context.Context, b Backend, o Options) (*Store, error) {
	if o.Codec > CodecS2 {
		return nil, fmt.Errorf("open store %s: %w: %s", b.Location(), ErrFormat, o.Codec)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if err := checkSigning(&o); err != nil {
		return nil, fmt.Errorf("open store %s: %w", b.Location(), err)
	}
	s := newStore(&objects{backend: b, log: o.Logger, cache: o.Cache}, &o)
	if err := s.identify(ctx, o.Identity); err != nil {
		return nil, fmt.Errorf("open store %s: %w", b.Location(), err)
	}
	return s, nil
}

// newStore makes the pieces of a store, which has no identity yet.
func newStore(all *objects, o *Options) *Store {
	keys := &dataKeys{objects: all, keyring: o.Keyring}
	m := &manifests{objects: all, keys: keys, trusted: o.Trusted}
	return &Store{
		identity:    &identity{objects: all},
		manifests:   m,
		dataKeys:    keys,
		collector:   &collector{objects: all, manifests: m, clock: machineClock},
		marks:       marks{all},
		workingSets: workingSets{all},
		notes:       notes{all},
		objects:     all,
		claims:      &claims{objects: all, clock: machineClock},
		writing:     writing{codec: o.Codec, spool: o.Spool, signingKey: o.SigningKey},
	}
}

// Backend returns the backend that the store was opened with.
func (s *Store) Backend() Backend { return s.objects.backend }

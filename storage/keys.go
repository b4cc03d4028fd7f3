package storage

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"

	"diapause.dev/api/snapshot"
)

// Secret is a key of 256 bits.
type Secret [32]byte

// String hides the key.
func (Secret) String() string { return "secret" }

// GoString hides the key.
func (Secret) GoString() string { return "secret" }

// Keys are the keys that a Keyring has for a namespace.
type Keys struct {
	Current *Secret  // wraps the data keys of new snapshots; nil: these are not encrypted
	Former  []Secret // unwrap data keys that have not been rewrapped yet
	Plain   Plain
}

// Plain says which snapshots that are not encrypted may be used. Whoever can write to a store can make one.
type Plain int

const (
	// PlainKnown allows those whose UID the reader knows from elsewhere. That of an encrypted snapshot says that it is
	// one: so no other one can be put in its place. See Store.CheckUnknown.
	PlainKnown Plain = iota
	// PlainAll allows all.
	PlainAll
	// PlainNone allows none.
	PlainNone
)

// Keyring knows the keys of namespaces. A Store asks it whenever a snapshot is read or written, so that keys can change
// while the store is open. Safe for concurrent use.
type Keyring interface {
	// Keys returns a namespace's keys. If there are none at all, the error is ErrKey: then nothing of the namespace is
	// read or written.
	Keys(namespace string) (Keys, error)
}

// keysOf returns a namespace's keys. Without a Keyring, nothing is encrypted.
func (s *Store) keysOf(namespace string) (Keys, error) {
	if s.keyring == nil {
		return Keys{Plain: PlainAll}, nil
	}
	k, err := s.keyring.Keys(namespace)
	if err != nil {
		return Keys{}, fmt.Errorf("keys of namespace %s: %w", namespace, err)
	}
	return k, nil
}

// Encrypts reports whether new snapshots of a namespace are encrypted.
func (s *Store) Encrypts(namespace string) (bool, error) {
	keys, err := s.keysOf(namespace)
	return keys.Current != nil, err
}

// checkPlain returns why a snapshot that is not encrypted may not be read, or nil.
func (s *Store) checkPlain(m *Manifest) error {
	if snapshot.MustBeEncrypted(m.Meta.UID) {
		return &CorruptError{Reason: "it is not encrypted, and its UID says that it is: it was put there by another program"}
	}
	keys, err := s.keysOf(m.Meta.Namespace)
	if err == nil && keys.Plain == PlainNone {
		err = fmt.Errorf("%w: the snapshot is not encrypted, and the key file of namespace %s says that all must be", ErrKey,
			m.Meta.Namespace)
	}
	return err
}

// CheckUnknown is for callers that start something from a snapshot that they know by its name alone. If it is not
// encrypted, and may have been put in the place of one that is, the error is ErrUntrusted.
func (s *Store) CheckUnknown(m *Manifest) error {
	if m.Encrypted() {
		return nil
	}
	keys, err := s.keysOf(m.Meta.Namespace)
	if err == nil && keys.Plain != PlainAll {
		err = fmt.Errorf("snapshot %s in %s is not encrypted, and nothing but its name is known of it: %w", m.Meta.Key,
			s.backend.Location(), ErrUntrusted)
	}
	return err
}

func (k Keys) all() []Secret {
	if k.Current == nil {
		return k.Former
	}
	return append([]Secret{*k.Current}, k.Former...)
}

// keyID names a namespace key or a data key, and reveals nothing about it.
type keyID [16]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// Each use of a key has its own key, derived under one of these contexts.
const (
	useKeyID    = "diapause.dev store 1: id of a namespace key"
	useDataID   = "diapause.dev store 1: id of a data key"
	useWrap     = "diapause.dev store 1: wrap data keys"
	useManifest = "diapause.dev store 1: manifest"
	usePack     = "diapause.dev store 1: pack"
	useSet      = "diapause.dev store 1: working set"
)

func derive(use string, key Secret, material []byte) (out Secret) {
	blake3.DeriveKey(use, append(key[:], material...), out[:])
	return out
}

func idOf(use string, key Secret) keyID {
	d := derive(use, key, nil)
	return keyID(d[:16])
}

func newAEAD(key Secret) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCM(block); err == nil {
			return a
		}
	}
	panic(err) // the key has the right length
}

// sealed is how many bytes encryption adds to a chunk, or to a section.
const sealed = 16

// lock is a data key: it encrypts the manifests and packs of a lineage.
type lock struct {
	id  keyID
	key Secret
}

func newLock() *lock {
	l := &lock{}
	_, _ = rand.Read(l.key[:]) // never fails
	l.id = idOf(useDataID, l.key)
	return l
}

// A data key's object: magic, the id of the namespace key that wraps it, a nonce, and the wrapped
// key.
const (
	wrappedMagic = "DIAPKEY\x01"
	wrappedSize  = len(wrappedMagic) + 16 + 12 + len(Secret{}) + sealed
)

func keysDir(namespace string) string { return namespace + "/keys/" }

func keyName(namespace string, id keyID) string { return keysDir(namespace) + id.String() }

// parseKeyName reports whether an object of a namespace is a data key, and returns the key's id.
func parseKeyName(namespace, object string) (id keyID, ok bool) {
	s, ok := strings.CutPrefix(object, keysDir(namespace))
	if !ok || len(s) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil && id.String() == s
}

// wrap returns a data key's object. The object's name is authenticated with it.
func (l *lock) wrap(namespace string, by Secret) []byte {
	id := idOf(useKeyID, by)
	b := append([]byte(wrappedMagic), id[:]...)
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce) // never fails
	b = append(b, nonce...)
	return newAEAD(derive(useWrap, by, nil)).Seal(b, nonce, l.key[:], []byte(keyName(namespace, l.id)))
}

// unwrap reads a data key's object. It also returns the id of the key that wraps it.
func unwrap(namespace string, id keyID, object []byte, keys []Secret) (*lock, keyID, error) {
	name := keyName(namespace, id)
	if len(object) != wrappedSize || string(object[:len(wrappedMagic)]) != wrappedMagic {
		return nil, keyID{}, &CorruptError{Object: name, Reason: "not a wrapped key"}
	}
	rest := object[len(wrappedMagic):]
	by, nonce, box := keyID(rest[:16]), rest[16:28], rest[28:]
	for _, k := range keys {
		if idOf(useKeyID, k) != by {
			continue
		}
		raw, err := newAEAD(derive(useWrap, k, nil)).Open(nil, nonce, box, []byte(name))
		if err != nil {
			return nil, by, &CorruptError{Object: name, Reason: "wrapped key", Err: err}
		}
		l := &lock{id: id, key: Secret(raw)}
		if idOf(useDataID, l.key) != id {
			return nil, by, &CorruptError{Object: name, Reason: "another data key"}
		}
		return l, by, nil
	}
	return nil, by, fmt.Errorf("%w: the data key %s is wrapped by key %s, which is not among the %d known", ErrKey, id, by,
		len(keys))
}

// unlocked remembers unwrapped data keys, and which key had wrapped each.
type unlocked struct {
	mu   sync.Mutex
	keys map[string]unlockedKey // by the object's name
}

type unlockedKey struct {
	lock *lock
	by   keyID
}

// unlock returns a data key of a namespace.
func (s *Store) unlock(ctx context.Context, namespace string, id keyID) (*lock, error) {
	ring, err := s.keysOf(namespace)
	if err != nil {
		return nil, err
	}
	keys := ring.all()
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: namespace %s is encrypted, and there is no key for it", ErrKey, namespace)
	}
	name := keyName(namespace, id)
	s.unlocked.mu.Lock()
	known, ok := s.unlocked.keys[name]
	s.unlocked.mu.Unlock()
	if ok && slices.ContainsFunc(keys, func(k Secret) bool { return idOf(useKeyID, k) == known.by }) {
		return known.lock, nil
	}
	object, err := s.readAll(ctx, name, int64(wrappedSize))
	if errors.Is(err, ErrNotFound) {
		return nil, &CorruptError{Object: name, Reason: "data key", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read data key %s of namespace %s: %w", id, namespace, err)
	}
	l, by, err := unwrap(namespace, id, object, keys)
	if err != nil {
		return nil, err
	}
	s.unlocked.mu.Lock()
	defer s.unlocked.mu.Unlock()
	if s.unlocked.keys == nil {
		s.unlocked.keys = map[string]unlockedKey{}
	}
	s.unlocked.keys[name] = unlockedKey{l, by}
	return l, nil
}

// putKey makes sure that a data key's object exists and can be unwrapped.
func (s *Store) putKey(ctx context.Context, namespace string, l *lock) error {
	ring, err := s.keysOf(namespace)
	if err != nil {
		return err
	}
	if ring.Current == nil {
		return fmt.Errorf("%w: namespace %s has no current key", ErrKey, namespace)
	}
	object := l.wrap(namespace, *ring.Current)
	err = s.backend.Create(ctx, keyName(namespace, l.id), bytes.NewReader(object), int64(len(object)))
	if !errors.Is(err, ErrExists) {
		return err
	}
	if _, err = s.unlock(ctx, namespace, l.id); errors.Is(err, ErrKey) {
		err = fmt.Errorf("keys of namespace %s have changed since the snapshot was begun: %w: put the former key back, "+
			"below the new one", namespace, err)
	}
	return err
}

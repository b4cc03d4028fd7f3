package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/format"
)

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

// dataKeys are those of a store: they encrypt its snapshots, and the keys of namespaces wrap them. Safe for concurrent
// use.
type dataKeys struct {
	objects  *objects
	keyring  Keyring // or nil
	unlocked unlocked
}

// of returns a namespace's keys. Without a Keyring, nothing is encrypted.
func (s *dataKeys) of(namespace string) (Keys, error) {
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
func (s *dataKeys) Encrypts(namespace string) (bool, error) {
	keys, err := s.of(namespace)
	return keys.Current != nil, err
}

// checkPlain returns why a snapshot that is not encrypted may not be read, or nil.
func (s *dataKeys) checkPlain(m *Manifest) error {
	if snapshot.MustBeEncrypted(m.Meta.UID) {
		return &CorruptError{Reason: "it is not encrypted, and its UID says that it is: it was put there by another program"}
	}
	keys, err := s.of(m.Meta.Namespace)
	if err == nil && keys.Plain == PlainNone {
		err = fmt.Errorf("%w: the snapshot is not encrypted, and the key file of namespace %s says that all must be", ErrKey,
			m.Meta.Namespace)
	}
	return err
}

// CheckUnknown is for callers that start something from a snapshot that they know by its name alone. If it is not
// encrypted, and may have been put in the place of one that is, the error is ErrUntrusted.
func (s *dataKeys) CheckUnknown(m *Manifest) error {
	if m.Encrypted() {
		return nil
	}
	keys, err := s.of(m.Meta.Namespace)
	if err == nil && keys.Plain != PlainAll {
		err = fmt.Errorf("snapshot %s in %s is not encrypted, and nothing but its name is known of it: %w", m.Meta.Key,
			s.objects.location(), ErrUntrusted)
	}
	return err
}

func (k Keys) all() []Secret {
	if k.Current == nil {
		return k.Former
	}
	return append([]Secret{*k.Current}, k.Former...)
}

// unlocked remembers unwrapped data keys, and which key had wrapped each.
type unlocked struct {
	mu   sync.Mutex
	keys map[string]unlockedKey // by the object's name
}

type unlockedKey struct {
	lock *format.DataKey
	by   format.KeyID
}

// unlock returns a data key of a namespace.
func (s *dataKeys) unlock(ctx context.Context, namespace string, id format.KeyID) (*format.DataKey, error) {
	ring, err := s.of(namespace)
	if err != nil {
		return nil, err
	}
	keys := ring.all()
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: namespace %s is encrypted, and there is no key for it", ErrKey, namespace)
	}
	name := format.KeyName(namespace, id)
	s.unlocked.mu.Lock()
	known, ok := s.unlocked.keys[name]
	s.unlocked.mu.Unlock()
	if ok && slices.ContainsFunc(keys, func(k Secret) bool { return format.KeyIDOf(k) == known.by }) {
		return known.lock, nil
	}
	object, err := s.objects.readAll(ctx, name, int64(format.WrappedSize))
	if errors.Is(err, ErrNotFound) {
		return nil, &CorruptError{Object: name, Reason: "data key", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read data key %s of namespace %s: %w", id, namespace, err)
	}
	l, by, err := format.UnwrapDataKey(namespace, id, object, keys)
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

// put makes sure that a data key's object exists and can be unwrapped.
func (s *dataKeys) put(ctx context.Context, namespace string, l *format.DataKey) error {
	ring, err := s.of(namespace)
	if err != nil {
		return err
	}
	if ring.Current == nil {
		return fmt.Errorf("%w: namespace %s has no current key", ErrKey, namespace)
	}
	object := l.Wrap(namespace, *ring.Current)
	err = s.objects.backend.Create(ctx, format.KeyName(namespace, l.ID()), bytes.NewReader(object), int64(len(object)))
	if !errors.Is(err, ErrExists) {
		return err
	}
	if _, err = s.unlock(ctx, namespace, l.ID()); errors.Is(err, ErrKey) {
		err = fmt.Errorf("keys of namespace %s have changed since the snapshot was begun: %w: put the former key back, "+
			"below the new one", namespace, err)
	}
	return err
}

// formerly reports whether a snapshot's data key was made under a former key of its namespace, or was wrapped by one
// when it was read. Whoever has that key and an old copy of the store knows the data key, even if it has been wrapped
// anew since.
func (s *dataKeys) formerly(m *Manifest, current Secret) bool {
	id := format.KeyIDOf(current)
	if made := m.Meta.NamespaceKey; made != "" {
		return made != id.String()
	}
	s.unlocked.mu.Lock()
	defer s.unlocked.mu.Unlock()
	known, ok := s.unlocked.keys[format.KeyName(m.Meta.Namespace, m.DataKey.ID())]
	return ok && known.by != id
}

// verify checks that the data key of an encrypted snapshot exists and can be unwrapped. It reads the key's object,
// because a store that has unwrapped the key before would not notice its loss.
func (s *dataKeys) verify(ctx context.Context, m *Manifest) error {
	if m.DataKey == nil {
		return nil
	}
	ring, err := s.of(m.Meta.Namespace)
	if err != nil {
		return err
	}
	name := format.KeyName(m.Meta.Namespace, m.DataKey.ID())
	object, err := s.objects.readAll(ctx, name, int64(format.WrappedSize))
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTruncated) {
		return &CorruptError{Object: name, Key: m.Meta.Key, Reason: "data key", Err: err}
	}
	if err == nil {
		_, _, err = format.UnwrapDataKey(m.Meta.Namespace, m.DataKey.ID(), object, ring.all())
	}
	if c := (*CorruptError)(nil); errors.As(err, &c) {
		c.Key = m.Meta.Key
	}
	return err
}

package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"diapause.dev/storage/format"
)

// manifests are those of a store: which snapshots there are, what they consist of, and whose they are.
type manifests struct {
	objects *objects
	keys    *dataKeys
	trusted []ed25519.PublicKey // none: all
}

// Manifest reads and checks a snapshot's manifest. If the snapshot does not exist, the error is ErrNotFound. If the
// manifest is damaged, or is another snapshot's, the error is a CorruptError.
func (s *manifests) Manifest(ctx context.Context, key Key) (*Manifest, error) {
	m, _, err := s.read(ctx, key)
	return m, err
}

// read returns the manifest and the exact bytes from which it was decoded.
func (s *manifests) read(ctx context.Context, key Key) (*Manifest, []byte, error) {
	if err := format.CheckKey(key); err != nil {
		return nil, nil, err
	}
	name := format.ManifestName(key)
	data, err := s.objects.readAll(ctx, name, format.MaxManifest)
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
func (s *manifests) decode(ctx context.Context, data []byte) (*Manifest, error) {
	m, err := format.DecodeWith(data, func(namespace string, id format.KeyID) (*format.DataKey, error) {
		return s.keys.unlock(ctx, namespace, id)
	})
	if err != nil || m.DataKey != nil {
		return m, err
	}
	if err := s.keys.checkPlain(m); err != nil {
		return nil, err
	}
	return m, nil
}

// digest reads the digest at the end of a manifest, and does not check it. That suffices to tell whether the store has
// a given manifest.
func (s *manifests) digest(ctx context.Context, key Key) (digest [format.DigestSize]byte, err error) {
	info, err := s.objects.backend.Stat(ctx, format.ManifestName(key))
	if err != nil {
		return digest, err
	}
	if info.Size < format.DigestSize {
		return digest, ErrTruncated
	}
	err = s.objects.backend.ReadAt(ctx, format.ManifestName(key), digest[:], info.Size-format.DigestSize)
	return digest, err
}

// Has reports whether the snapshot exists, without reading its manifest.
func (s *manifests) Has(ctx context.Context, key Key) (bool, error) {
	if err := format.CheckKey(key); err != nil {
		return false, err
	}
	_, err := s.objects.backend.Stat(ctx, format.ManifestName(key))
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
func (s *manifests) List(ctx context.Context, namespace string, fn func(Listed) error) error {
	prefix := ""
	if namespace != "" {
		if err := format.CheckNamespace(namespace); err != nil {
			return err
		}
		prefix = format.SnapshotsDir(namespace)
	}
	return s.objects.backend.List(ctx, prefix, func(o ObjectInfo) error {
		key, ok := format.ParseManifestName(o.Name)
		if !ok {
			return nil
		}
		return fn(Listed{Key: key, Modified: o.Modified, Size: o.Size})
	})
}

// Users returns the snapshots of a namespace whose manifests name any of the objects. It skips manifests that cannot be
// read: their snapshots are lost in any case.
func (s *manifests) Users(ctx context.Context, namespace string, objects ...string) (keys []Key, err error) {
	err = s.List(ctx, namespace, func(l Listed) error {
		e, err := s.envelope(ctx, l.Key)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrCorrupt), errors.Is(err, ErrFormat):
			return nil
		case err != nil:
			return err
		}
		if slices.ContainsFunc(neededByEnvelope(e), func(o ObjectInfo) bool { return slices.Contains(objects, o.Name) }) {
			keys = append(keys, l.Key)
		}
		return nil
	})
	return keys, err
}

// holds reports whether the store has this very manifest.
func (s *manifests) holds(ctx context.Context, m *Manifest) (bool, error) {
	digest, err := s.digest(ctx, m.Meta.Key)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTruncated) {
		return false, nil
	}
	return digest == m.Digest, err
}

// hasBytes reports whether a snapshot's manifest consists of exactly these bytes. If another snapshot has the key,
// the error is ErrExists. If the manifest is damaged, the error is ErrCorrupt: nobody can tell whose manifest it was.
func (s *manifests) hasBytes(ctx context.Context, key Key, data []byte) (bool, error) {
	name := format.ManifestName(key)
	have, err := s.objects.readAll(ctx, name, format.MaxManifest)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", name, err)
	case bytes.Equal(have, data):
		return true, nil
	}
	if _, err := format.OpenEnvelope(have); err != nil && !errors.Is(err, ErrFormat) {
		return false, &CorruptError{Object: name, Key: key, Reason: "manifest", Err: err}
	}
	return false, fmt.Errorf("another snapshot %s: %w", key, ErrExists)
}

// put creates a manifest. It is no error if another process has created the same manifest meanwhile.
func (s *manifests) put(ctx context.Context, key Key, data []byte) error {
	err := s.objects.backend.Create(ctx, format.ManifestName(key), bytes.NewReader(data), int64(len(data)))
	if err == nil {
		return nil
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	if same, lookErr := s.hasBytes(look, key, data); lookErr == nil && same {
		return nil
	}
	return err
}

// envelope reads what can be read of a snapshot's manifest without a key.
func (s *manifests) envelope(ctx context.Context, key Key) (*format.Envelope, error) {
	name := format.ManifestName(key)
	data, err := s.objects.readAll(ctx, name, format.MaxManifest)
	if err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", key, err)
	}
	e, err := format.OpenEnvelope(data)
	switch {
	case errors.Is(err, ErrFormat):
		return nil, fmt.Errorf("read manifest of %s: %w", key, err)
	case err != nil:
		return nil, &CorruptError{Object: name, Key: key, Reason: "manifest", Err: err}
	case e.Key != key:
		return nil, &CorruptError{Object: name, Key: key, Reason: fmt.Sprintf("the manifest is that of %s", e.Key)}
	}
	return e, nil
}

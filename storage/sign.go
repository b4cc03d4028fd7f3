package storage

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"diapause.dev/storage/format"
	"diapause.dev/storage/signing"
)

// TrustedManifest is Manifest for callers that start something from the snapshot. If the store was opened with trusted
// keys and none of them has signed the snapshot, the error is ErrUntrusted.
func (s *Store) TrustedManifest(ctx context.Context, key Key) (*Manifest, error) {
	m, err := s.Manifest(ctx, key)
	if err == nil {
		err = s.Trusts(m)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Trusts returns nil if the store was opened without trusted keys, or if one of them has signed the manifest. Otherwise
// it returns an ErrUntrusted that names the signer.
func (s *Store) Trusts(m *Manifest) error {
	if len(s.trusted) == 0 || m.Signer != nil && signing.Has(s.trusted, m.Signer) {
		return nil
	}
	by := "not signed"
	if m.Signer != nil {
		by = "signed by " + m.SignedBy()
	}
	return fmt.Errorf("snapshot %s in %s is %s: %w", m.Meta.Key, s.backend.Location(), by, ErrUntrusted)
}

// setKeys takes the keys of the options.
func (s *Store) setKeys(o *Options) error {
	if n := len(o.SigningKey); n != 0 && n != ed25519.PrivateKeySize {
		return errors.New("the signing key has a wrong length")
	}
	for _, key := range o.Trusted {
		if len(key) != ed25519.PublicKeySize {
			return errors.New("a trusted key has a wrong length")
		}
	}
	s.signingKey, s.trusted = o.SigningKey, o.Trusted
	return nil
}

// encode returns the bytes of a new manifest, signed if the store has a key for that. It sets m's digest and signer.
func (s *Store) encode(m *Manifest) ([]byte, error) {
	data, err := format.EncodeSigned(m, s.signingKey)
	if err != nil {
		return nil, err
	}
	m.Digest = [format.DigestSize]byte(data[len(data)-format.DigestSize:])
	if s.signingKey != nil {
		m.Signer = s.signingKey.Public().(ed25519.PublicKey)
	}
	return data, nil
}

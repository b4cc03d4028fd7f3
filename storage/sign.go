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
func (s *manifests) TrustedManifest(ctx context.Context, key Key) (*Manifest, error) {
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
func (s *manifests) Trusts(m *Manifest) error {
	if len(s.trusted) == 0 || m.Signer != nil && signing.Has(s.trusted, m.Signer) {
		return nil
	}
	by := "not signed"
	if m.Signer != nil {
		by = "signed by " + m.SignedBy()
	}
	return fmt.Errorf("snapshot %s in %s is %s: %w", m.Meta.Key, s.objects.location(), by, ErrUntrusted)
}

// checkSigning returns an error unless the keys of the options can be such.
func checkSigning(o *Options) error {
	if n := len(o.SigningKey); n != 0 && n != ed25519.PrivateKeySize {
		return errors.New("the signing key has a wrong length")
	}
	for _, key := range o.Trusted {
		if len(key) != ed25519.PublicKeySize {
			return errors.New("a trusted key has a wrong length")
		}
	}
	return nil
}

// encode returns the bytes of a new manifest, signed if there is a key. It sets m's digest and signer.
func encode(m *Manifest, key ed25519.PrivateKey) ([]byte, error) {
	data, err := format.EncodeSigned(m, key)
	if err != nil {
		return nil, err
	}
	m.Digest = [format.DigestSize]byte(data[len(data)-format.DigestSize:])
	if key != nil {
		m.Signer = key.Public().(ed25519.PublicKey)
	}
	return data, nil
}

package storage

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"

	"diapause.dev/storage/signing"
)

const (
	tagSign  = "sign"
	signSize = ed25519.PublicKeySize + ed25519.SignatureSize

	// signContext keeps signatures of manifests apart from other uses of a key (Ed25519ctx, RFC 8032). It is part of the
	// format.
	signContext = "diapause.dev manifest"
)

var signOptions = &ed25519.Options{Context: signContext}

// appendSignature appends the section by which a key signs all bytes before it.
func appendSignature(b []byte, key ed25519.PrivateKey) ([]byte, error) {
	digest := blake3.Sum256(b)
	signature, err := key.Sign(nil, digest[:], signOptions)
	if err != nil {
		return nil, err
	}
	return append(append(appendHead(b, tagSign, signSize), publicOf(key)...), signature...), nil
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// cutSignature checks the signature of a manifest without its digest. It returns the bytes that are signed, and who has
// signed them. For a manifest without a signature, it returns body and nil.
func cutSignature(body []byte, sections map[string][]byte) ([]byte, ed25519.PublicKey, error) {
	data, ok := sections[tagSign]
	if !ok {
		return body, nil, nil
	}
	if len(data) != signSize {
		return nil, nil, fmt.Errorf("section %q: %d bytes", tagSign, len(data))
	}
	if &data[signSize-1] != &body[len(body)-1] {
		return nil, nil, fmt.Errorf("section %q is not the last", tagSign)
	}
	signed := body[:len(body)-signSize-sectionPrefix]
	signer := ed25519.PublicKey(bytes.Clone(data[:ed25519.PublicKeySize])) // a part of data would keep all of it in memory
	digest := blake3.Sum256(signed)
	if ed25519.VerifyWithOptions(signer, digest[:], data[ed25519.PublicKeySize:], signOptions) != nil {
		return nil, nil, fmt.Errorf("section %q: not a signature of this manifest by %s", tagSign,
			signing.Fingerprint(signer))
	}
	return signed, signer, nil
}

// SignedBy returns the fingerprint of the key that has signed the snapshot, or "" if it is not signed. It does not say
// whether that key is trusted.
func (m *Manifest) SignedBy() string {
	if m.Signer == nil {
		return ""
	}
	return signing.Fingerprint(m.Signer)
}

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
	data, err := encodeManifest(m, s.signingKey)
	if err != nil {
		return nil, err
	}
	m.Digest = [digestSize]byte(data[len(data)-digestSize:])
	if s.signingKey != nil {
		m.Signer = publicOf(s.signingKey)
	}
	return data, nil
}

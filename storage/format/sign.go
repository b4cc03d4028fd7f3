package format

import (
	"bytes"
	"crypto/ed25519"
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
	return append(append(appendHead(b, tagSign, signSize), key.Public().(ed25519.PublicKey)...), signature...), nil
}

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

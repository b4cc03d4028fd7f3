// Package signing reads the Ed25519 keys that sign snapshots from PEM files, and names public keys. It imports nothing
// of ours.
package signing

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// Types of PEM blocks.
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// maxFile bounds a file of keys, in bytes.
const maxFile = 64 << 10

// Fingerprint names a public key: "SHA256:" and the SHA-256 of its DER encoding (SubjectPublicKeyInfo), in base64
// without padding.
func Fingerprint(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // an Ed25519 key can be encoded
	}
	sum := sha256.Sum256(der)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// ReadPrivate reads a private key from a file: one block PRIVATE KEY (PKCS #8), as "openssl genpkey -algorithm ed25519"
// makes it. Errors name the file, and contain nothing of it.
func ReadPrivate(path string) (ed25519.PrivateKey, error) {
	blocks, err := readBlocks(path, privateBlock)
	if err != nil {
		return nil, err
	}
	if len(blocks) != 1 {
		return nil, fmt.Errorf("%s: %d keys: want one", path, len(blocks))
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0])
	if err != nil {
		return nil, fmt.Errorf("%s: not a private key in PKCS #8: make one by %q", path, howToMake)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: not an Ed25519 key: make one by %q", path, howToMake)
	}
	return private, nil
}

// ReadPublic reads public keys from a file: one or more blocks PUBLIC KEY, as "openssl pkey -pubout" makes them. There
// is at least one, and each is there once. Errors name the file.
func ReadPublic(path string) ([]ed25519.PublicKey, error) {
	blocks, err := readBlocks(path, publicBlock)
	if err != nil {
		return nil, err
	}
	var keys []ed25519.PublicKey
	for i, der := range blocks {
		var key crypto.PublicKey
		if key, err = x509.ParsePKIXPublicKey(der); err != nil {
			return nil, fmt.Errorf("%s: key %d cannot be read: make it by %q", path, i+1, howToPublish)
		}
		public, ok := key.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%s: key %d is not an Ed25519 key: make a pair by %q", path, i+1, howToMake)
		}
		if !Has(keys, public) {
			keys = append(keys, public)
		}
	}
	return keys, nil
}

const (
	howToMake    = "openssl genpkey -algorithm ed25519"
	howToPublish = "openssl pkey -in KEY -pubout"
)

// Has reports whether keys contain a key.
func Has(keys []ed25519.PublicKey, key ed25519.PublicKey) bool {
	for _, k := range keys {
		if k.Equal(key) {
			return true
		}
	}
	return false
}

// readBlocks returns the content of a file's PEM blocks, which must all have one type. Text between blocks is ignored,
// but not a block that is damaged.
func readBlocks(path, want string) (blocks [][]byte, err error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	begun := bytes.Count(data, []byte("-----BEGIN "))
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != want {
			return nil, fmt.Errorf("%s: %w", path, wrongType(block.Type, want))
		}
		blocks, data = append(blocks, block.Bytes), rest
	}
	switch {
	case begun == 0:
		return nil, fmt.Errorf("%s: no PEM block %q in it", path, want)
	case begun != len(blocks):
		return nil, fmt.Errorf("%s: %d of %d PEM blocks are damaged", path, begun-len(blocks), begun)
	}
	return blocks, nil
}

func wrongType(got, want string) error {
	switch {
	case want == publicBlock && got == privateBlock:
		return fmt.Errorf("a private key, where public ones are wanted: make one of it by %q", howToPublish)
	case want == privateBlock && got == publicBlock:
		return errors.New("a public key, where the private one is wanted")
	}
	return fmt.Errorf("a PEM block %.40q: want %q", got, want)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the file
	}
	defer f.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, err
}

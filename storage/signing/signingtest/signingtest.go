// Package signingtest makes signing keys for tests.
package signingtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/storage/signing"
)

// Pair is a new key pair, and the files that hold its halves.
type Pair struct {
	Private     ed25519.PrivateKey
	PrivateFile string
	PublicFile  string
	Fingerprint string
}

// New makes a pair.
func New(t testing.TB) Pair {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return Pair{
		Private: private, Fingerprint: signing.Fingerprint(public),
		PrivateFile: write(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", a),
		PublicFile:  write(t, filepath.Join(dir, "pub.pem"), "PUBLIC KEY", b),
	}
}

func write(t testing.TB, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

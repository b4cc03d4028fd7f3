package signing

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A pair as openssl has made it: "openssl genpkey -algorithm ed25519", "openssl pkey -pubout". The fingerprint is what
// "openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64" says, without the "=".
const (
	privatePEM = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIIUXhv7HOY0Cwfi74tL8Fi5d3hW4au3K6TajoOccNEGZ
-----END PRIVATE KEY-----
`
	publicPEM = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEATiDga4kgRv04/E2lCrjgYlSQHjuJ5zC7N9HVL4gRKMk=
-----END PUBLIC KEY-----
`
	fingerprint = "SHA256:2m72FtTT8Klus7DAZqUTut6DxoMmLB4556YWqj2p3us"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// otherPEM returns the private and the public key of a pair that is not Ed25519.
func otherPEM(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: a})),
		string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: b}))
}

func TestOpenSSL(t *testing.T) {
	private, err := ReadPrivate(file(t, privatePEM))
	if err != nil {
		t.Fatal(err)
	}
	public, err := ReadPublic(file(t, "the first\n"+publicPEM+"the same\n"+publicPEM))
	if err != nil || len(public) != 1 || !public[0].Equal(private.Public()) {
		t.Fatalf("%v, %v", public, err)
	}
	if got := Fingerprint(public[0]); got != fingerprint {
		t.Errorf("fingerprint %s", got)
	}
	if other := make(ed25519.PublicKey, ed25519.PublicKeySize); Has(public, other) || !Has(public, public[0]) {
		t.Error("Has is wrong")
	}
}

// TestRefused: each error names the file, and contains nothing of it.
func TestRefused(t *testing.T) {
	otherPrivate, otherPublic := otherPEM(t)
	broken := func(text string) string { return strings.Replace(text, "\nM", "\n!", 1) }
	for _, c := range []struct {
		what, text, want string
		private          bool
	}{
		{"empty", "", "no PEM block", true},
		{"empty", "", "no PEM block", false},
		{"public for private", publicPEM, "a public key", true},
		{"private for public", privatePEM, "openssl pkey -in KEY -pubout", false},
		{"private beside public", publicPEM + privatePEM, "a private key", false},
		{"two private ones", privatePEM + privatePEM, "want one", true},
		{"not Ed25519", otherPrivate, "not an Ed25519 key", true},
		{"not Ed25519", otherPublic, "not an Ed25519 key", false},
		{"damaged", broken(privatePEM), "damaged", true},
		{"one damaged", publicPEM + broken(publicPEM), "1 of 2 PEM blocks are damaged", false},
		{"not a key", strings.ReplaceAll(publicPEM, "PUBLIC", "PRIVATE"), "PKCS #8", true},
		{"not a key", strings.ReplaceAll(privatePEM, "PRIVATE", "PUBLIC"), "cannot be read", false},
		{"certificate", strings.ReplaceAll(publicPEM, "PUBLIC KEY", "CERTIFICATE"), "CERTIFICATE", false},
		{"large", strings.Repeat("x", maxFile+1), "larger than", false},
	} {
		path := file(t, c.text)
		_, err := ReadPublic(path)
		if c.private {
			_, err = ReadPrivate(path)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "MC4C") {
			t.Errorf("%s (private: %v): %v", c.what, c.private, err)
		}
	}
	if _, err := ReadPublic("/nowhere/key.pem"); err == nil || !strings.Contains(err.Error(), "/nowhere/key.pem") {
		t.Errorf("no file: %v", err)
	}
}

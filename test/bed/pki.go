package bed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

// lifetime is how long certificates are good for, longer than any bed.
const lifetime = 24 * time.Hour

// pair is a certificate with its key, both in PEM.
type pair struct{ cert, key []byte }

// authority issues the certificates of one cluster.
type authority struct {
	pair
	root *x509.Certificate
	sign crypto.Signer
}

func newAuthority() (*authority, error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "bed"},
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &authority{root: template, sign: key}
	if a.pair, err = a.certify(template, key); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.cert)
	if a.root, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("bed: parse the certificate of the authority: %w", err)
	}
	return a, nil
}

// client issues a certificate by which a user with these groups is known.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues a certificate for a server at these names and addresses.
func (a *authority) server(name string, hosts ...string) (pair, error) {
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return a.issue(c)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return a.certify(template, key)
}

// certify makes the certificate of a key.
func (a *authority) certify(template *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(lifetime)
	cert, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.sign)
	if err != nil {
		return pair{}, fmt.Errorf("bed: certify %s: %w", template.Subject, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("bed: key of %s: %w", template.Subject, err)
	}
	return pair{cert: encode("CERTIFICATE", cert), key: encode("PRIVATE KEY", private)}, nil
}

// newSigningKey returns a private key and its public one, with no certificate.
func newSigningKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	private, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("bed: signing key: %w", err)
	}
	public, err = x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("bed: signing key: %w", err)
	}
	return encode("PRIVATE KEY", private), encode("PUBLIC KEY", public), nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("bed: make a key: %w", err)
	}
	return key, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

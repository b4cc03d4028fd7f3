package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// nowhere is a path at which there is nothing.
const nowhere = "/nonexistent"

// TestNoCertificates: where there are no certificates, as in the image, the agent trusts the authorities that it
// brings, and can speak to a bucket. What is trusted is settled once a process, so the test starts another one.
func TestNoCertificates(t *testing.T) {
	if os.Getenv("SSL_CERT_FILE") == nowhere {
		roots, err := x509.SystemCertPool()
		if err != nil {
			t.Fatal(err)
		}
		if roots.Equal(x509.NewCertPool()) {
			t.Fatal("the agent trusts nobody")
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+nowhere, "SSL_CERT_DIR="+nowhere)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

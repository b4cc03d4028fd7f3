package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/s3"
)

// credentialsFile writes a file of credentials.
func credentialsFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bucket.ini")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCredentialsFile: a bucket is opened with the credentials in a file, in place of this process's own, which reach
// nothing.
func TestCredentialsFile(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "another")
	bucket := newBucket(t)
	if _, err := s3.Open(t.Context(), place(t, honest, bucket, ""), s3.Options{}); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("with a key that is not known: %v", err)
	}
	file := credentialsFile(t, "# of the tenant\n[other]\naws_access_key_id = x\n[default]\n"+
		"aws_access_key_id = "+accessKey+"\naws_secret_access_key="+secretKey+"\n")
	c, err := s3.CredentialsFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s3.Open(t.Context(), place(t, honest, bucket, ""), s3.Options{Credentials: c})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Replace(t.Context(), "object", []byte("x")); err != nil {
		t.Error(err)
	}
}

// TestHostileCredentials: a file that holds no credentials is refused, with its name and without its content.
func TestHostileCredentials(t *testing.T) {
	for name, content := range map[string]string{
		"empty":         "",
		"other format":  `{"aws_secret_access_key": "s3cr3t"}`,
		"no profile":    "aws_access_key_id=a\naws_secret_access_key=s3cr3t\n",
		"other profile": "[p]\naws_access_key_id=a\naws_secret_access_key=s3cr3t\n",
		"no secret":     "[default]\naws_access_key_id=s3cr3t\n",
		"a program":     "[default]\ncredential_process=echo s3cr3t\n",
		"endless":       "[default]\naws_access_key_id=a\naws_secret_access_key=" + strings.Repeat("s3cr3t", 1<<20),
	} {
		file := credentialsFile(t, content)
		_, err := s3.CredentialsFile(file)
		if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s3.CredentialsFile(filepath.Join(t.TempDir(), "none.ini")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// ofPlatform has this process get its credentials from a service of the platform alone, as pods do on EKS.
func ofPlatform(t *testing.T, answer http.HandlerFunc) {
	t.Helper()
	node := httptest.NewServer(answer)
	t.Cleanup(node.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("of the pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": t.TempDir(),
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": node.URL, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token,
	} {
		t.Setenv(name, value)
	}
}

// TestPlatformCredentials: a pod gets its credentials from the platform, with its token.
func TestPlatformCredentials(t *testing.T) {
	ofPlatform(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "of the pod" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, `{"AccessKeyId": %q, "SecretAccessKey": %q, "Expiration": %q}`, accessKey, secretKey,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	open(t, honest, newBucket(t), "p")
}

// TestNoCredentials: if a platform gives its pod no credentials, this counts as denied access, and no request goes out
// without a signature.
func TestNoCredentials(t *testing.T) {
	ofPlatform(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	g := newGuard(t, honest)
	_, err := s3.Open(t.Context(), place(t, g.URL, newBucket(t), "p"), s3.Options{})
	if !errors.Is(err, storage.ErrDenied) {
		t.Error(err)
	}
	if asked := g.Asked(); len(asked) != 0 {
		t.Errorf("asked %q", asked)
	}
}

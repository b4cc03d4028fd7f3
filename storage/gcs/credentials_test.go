package gcs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/api/option"

	"diapause.dev/storage"
	"diapause.dev/storage/gcs"
)

// guard stands before the fake server, which looks at no credentials. It gives tokens to service accounts, and lets
// each into its own bucket alone.
type guard struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	bucket map[string]string // by token
	seen   []string          // tokens and the paths that they came with
	denies bool              // to give tokens
}

func newGuard(t *testing.T) *guard {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: os.Getenv("STORAGE_EMULATOR_HOST")}
	t.Setenv("STORAGE_EMULATOR_HOST", "") // with it, the client sends no credentials
	g := &guard{
		proxy:  &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }},
		bucket: make(map[string]string),
	}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if bucket, ok := strings.CutPrefix(r.URL.Path, "/token/"); ok {
		g.issue(w, bucket)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.seen = append(g.seen, token+" "+r.URL.Path)
	own, known := g.bucket[token]
	if !known || !strings.Contains(r.URL.Path+"/", "/b/"+own+"/") {
		http.Error(w, `{"error": {"code": 403, "message": "no access"}}`, http.StatusForbidden)
		return
	}
	g.proxy.ServeHTTP(w, r)
}

// issue gives the service account of a bucket a token.
func (g *guard) issue(w http.ResponseWriter, bucket string) {
	if g.denies {
		http.Error(w, `{"error": "invalid_grant"}`, http.StatusBadRequest)
		return
	}
	token := rand.Text()
	g.bucket[token] = bucket
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, token)
}

// account writes a key of a service account that reaches a bucket.
func (g *guard) account(t *testing.T, bucket string) (file string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": bucket + "@example.com", "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   g.URL + "/token/" + bucket,
	})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), bucket+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// open opens a bucket with the credentials in a file.
func (g *guard) open(t *testing.T, bucket, file string) (*gcs.Backend, error) {
	t.Helper()
	credentials, err := gcs.CredentialsFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gcs.Open(t.Context(), bucket, "", option.WithEndpoint(g.URL+"/storage/v1/"), credentials)
	if err == nil {
		t.Cleanup(func() { b.Close() })
	}
	return b, err
}

// TestHostileTenantCredentials: the credentials of one tenant's bucket do not open another tenant's, and are sent
// nowhere else.
func TestHostileTenantCredentials(t *testing.T) {
	ofA, ofB := newBucket(t), newBucket(t)
	g := newGuard(t)
	a, b := g.account(t, ofA), g.account(t, ofB)
	if _, err := g.open(t, ofB, a); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("another tenant's bucket: %v, want %v", err, storage.ErrDenied)
	}
	g.seen = nil
	for bucket, file := range map[string]string{ofA: a, ofB: b} {
		backend, err := g.open(t, bucket, file)
		if err != nil {
			t.Fatal(err)
		}
		if err := backend.Replace(t.Context(), "object", []byte("x")); err != nil {
			t.Error(err)
		}
	}
	for _, s := range g.seen {
		token, path, _ := strings.Cut(s, " ")
		if !strings.Contains(path+"/", "/b/"+g.bucket[token]+"/") {
			t.Errorf("the token of %s was sent to %s", g.bucket[token], path)
		}
	}
	if len(g.seen) < 4 {
		t.Errorf("only %q were seen", g.seen)
	}
}

// TestCredentialsRefused: a service account that no longer gets tokens is denied access.
func TestCredentialsRefused(t *testing.T) {
	bucket := newBucket(t)
	g := newGuard(t)
	g.denies = true
	if _, err := g.open(t, bucket, g.account(t, bucket)); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("got %v, want %v", err, storage.ErrDenied)
	}
}

// TestHostileCredentials: a file that holds no credentials of a program is refused, with its name.
func TestHostileCredentials(t *testing.T) {
	for name, data := range map[string]string{
		"empty":       "",
		"not JSON":    "secret",
		"no type":     "{}",
		"of a person": `{"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}`,
		"endless":     `{"type": "service_account", "x": "` + strings.Repeat("x", 1<<20) + `"}`,
		"no key":      `{"type": "service_account", "client_email": "x"}`,
	} {
		file := filepath.Join(t.TempDir(), "key.json")
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := gcs.CredentialsFile(file)
		if name == "no key" && err == nil {
			continue // it shows when a token is asked for
		}
		if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gcs.CredentialsFile(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

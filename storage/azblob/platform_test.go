package azblob_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
)

// azure stands for Azure's hosts: those that give tokens, and the store.
type azure struct {
	*httptest.Server
	refuses bool // to give a token

	mu     sync.Mutex
	tokens int      // how often a token was asked for
	shown  []string // to the store
}

func newAzure(t *testing.T) *azure {
	t.Helper()
	a := &azure{}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	for _, name := range []string{
		"AZURE_STORAGE_KEY", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_SECRET", "AZURE_CLIENT_ID", "IDENTITY_ENDPOINT",
	} {
		t.Setenv(name, "")
	}
	return a
}

func (a *azure) open(t *testing.T, location string) error {
	t.Helper()
	p, err := azblob.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	config := a.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com" // for which the server has a certificate
	b, err := azblob.OpenFrom(t.Context(), p, config, a.Listener.Addr().String())
	if err == nil {
		err = b.Close()
	}
	return err
}

func (a *azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const tenant = "https://login.microsoftonline.com/tenant"
	switch {
	case strings.Contains(r.URL.Path, "discovery/instance"):
		_, _ = fmt.Fprintf(w, `{"tenant_discovery_endpoint": "%s/v2.0/.well-known/openid-configuration", "metadata": [`+
			`{"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net",`+
			` "aliases": ["login.microsoftonline.com"]}]}`, tenant)
	case strings.HasSuffix(r.URL.Path, "openid-configuration"):
		_, _ = fmt.Fprintf(w, `{"authorization_endpoint": "%[1]s/authorize", "token_endpoint": "%[1]s/token",`+
			` "issuer": "%[1]s/v2.0"}`, tenant)
	case strings.HasSuffix(r.URL.Path, "/token"):
		a.token(w, r)
	default:
		a.shown = append(a.shown, r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, "<EnumerationResults><Blobs></Blobs></EnumerationResults>")
	}
}

// token gives who asks a token with a name that says how it has asked.
func (a *azure) token(w http.ResponseWriter, r *http.Request) {
	a.tokens++
	if a.refuses {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error": "invalid_client", "error_description": "AADSTS70021: no such federated identity"}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"token_type": "Bearer", "expires_in": 3600, "access_token": "for-%s%s"}`,
		r.FormValue("client_assertion"), r.FormValue("client_secret"))
}

const inAzure = "azblob://myaccount/snapshots/p"

// workload gives this process the identity of a workload.
func workload(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", file)
	t.Setenv("AZURE_CLIENT_ID", "client")
	t.Setenv("AZURE_TENANT_ID", "tenant")
}

// TestPlatformCredentials: a pod gets a token from the platform, for its own token or secret, or from its machine.
func TestPlatformCredentials(t *testing.T) {
	for _, test := range []struct {
		name, want string
		set        func(t *testing.T)
	}{
		{"workload", "Bearer for-pod", workload},
		{"secret", "Bearer for-s3cr3t", func(t *testing.T) {
			t.Setenv("AZURE_CLIENT_SECRET", "s3cr3t")
			t.Setenv("AZURE_CLIENT_ID", "client")
			t.Setenv("AZURE_TENANT_ID", "tenant")
		}},
		{"machine", "Bearer of-machine", func(t *testing.T) {
			machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Identity-Header") == "of the node" {
					_, _ = fmt.Fprint(w, `{"access_token": "of-machine", "expires_on": "4102444800", "token_type": "Bearer"}`)
				}
			}))
			t.Cleanup(machine.Close)
			t.Setenv("IDENTITY_ENDPOINT", machine.URL)
			t.Setenv("IDENTITY_HEADER", "of the node")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAzure(t)
			test.set(t)
			if err := a.open(t, inAzure); err != nil {
				t.Fatal(err)
			}
			if len(a.shown) == 0 || a.shown[0] != test.want {
				t.Errorf("shown %q, want %q", a.shown, test.want)
			}
		})
	}
}

// TestNoToken: if the platform gives no token, this counts as denied access, and the store is asked nothing.
func TestNoToken(t *testing.T) {
	a := newAzure(t)
	a.refuses = true
	workload(t)
	err := a.open(t, inAzure)
	if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), "AADSTS70021") ||
		strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if len(a.shown) != 0 {
		t.Errorf("shown %q", a.shown)
	}
}

// TestHostileEndpoint: a token of this process is shown only to Azure's own hosts, by TLS. It could be used with every
// account that the identity reaches.
func TestHostileEndpoint(t *testing.T) {
	a := newAzure(t)
	workload(t)
	for _, endpoint := range []string{
		"https://store.example.com", "http://myaccount.blob.core.windows.net", "https://blob.core.windows.net.example.com",
		"https://myaccount.blob.core.windows.net.", "https://evilblob.core.windows.net",
	} {
		if err := a.open(t, inAzure+"?endpoint="+endpoint); !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if a.tokens != 0 || len(a.shown) != 0 {
		t.Errorf("%d tokens were asked for, and shown %q", a.tokens, a.shown)
	}
	if err := a.open(t, inAzure+"?endpoint=https://myaccount.blob.core.chinacloudapi.cn"); err != nil {
		t.Errorf("Azure's cloud in China: %v", err)
	}
}

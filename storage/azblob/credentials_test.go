package azblob_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/storagetest"
)

// credentialsFile writes a file of credentials.
func credentialsFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "account.container.ini")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func credentials(t *testing.T, lines string) *azblob.Credentials {
	t.Helper()
	c, err := azblob.CredentialsFile(credentialsFile(t, "# of the tenant\n[storage]\naccount = "+account+"\n"+lines+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// signature returns a shared access signature for a container.
func signature(t *testing.T, container string) string {
	t.Helper()
	may := sas.ContainerPermissions{Read: true, Add: true, Create: true, Write: true, Delete: true, List: true}
	u, err := containerClient(t, container).GetSASURL(may, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(u, "?")
	return query
}

// TestCredentialsFile: a container is opened with the key or the signature in a file, in place of this process's own
// credentials, which reach nothing.
func TestCredentialsFile(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "YW5vdGhlcg==")
	name := newContainer(t)
	g := storagetest.NewTLSGuard(t, server, kind)
	tls := g.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := azblob.Open(t.Context(), place(t, g.URL, name, ""), azblob.Options{TLS: tls}); !errors.Is(err,
		storage.ErrDenied) {
		t.Errorf("with another key: %v", err)
	}
	for what, line := range map[string]string{
		"key": "key=" + accountKey, "sas": "sas_token = " + signature(t, name), "sas-url": "sas_token=?" + signature(t, name),
	} {
		b := openWith(t, g.URL, name, "", azblob.Options{Credentials: credentials(t, line), TLS: tls})
		if err := storagetest.CreateStream(t.Context(), b, what, storagetest.Bytes(1, storagetest.PartSize+1)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHostileCredentials: a file that holds no credentials is refused, with its name and without its content.
func TestHostileCredentials(t *testing.T) {
	for name, content := range map[string]string{
		"empty":         "",
		"other format":  `{"key": "s3cr3t"}`,
		"no section":    "account=a\nkey=czNjcjN0\n",
		"other section": "[p]\naccount=a\nkey=s3cr3t\n",
		"no account":    "[storage]\nkey=s3cr3t\n",
		"no secret":     "[storage]\naccount=s3cr3t\n",
		"both":          "[storage]\naccount=a\nkey=s3cr3t\nsas_token=sig=s3cr3t\n",
		"not base64":    "[storage]\naccount=a\nkey=s3cr3t-\n",
		"no signature":  "[storage]\naccount=a\nsas_token=sv=s3cr3t\n",
		"broken":        "[storage]\naccount=a\nsas_token=sig=s3cr3t%zz\n",
		"endless":       "[storage]\naccount=a\nkey=" + strings.Repeat("s3cr3t", 1<<20),
	} {
		file := credentialsFile(t, content)
		_, err := azblob.CredentialsFile(file)
		if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := azblob.CredentialsFile(filepath.Join(t.TempDir(), "none.ini")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestHostileSecrets: a secret goes to no other account, and a signature nowhere without TLS. No error has it in it.
func TestHostileSecrets(t *testing.T) {
	g := storagetest.NewGuard(t, server, kind)
	for location, line := range map[string]string{
		"azblob://another/container?endpoint=" + g.URL: "key=" + accountKey,
		location(g.URL, "container", ""):               "sas_token=sv=1&sig=s3cr3t",
	} {
		p, err := azblob.Parse(location)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := azblob.Open(t.Context(), p, azblob.Options{Credentials: credentials(t, line)}); !errors.Is(err,
			storage.ErrDenied) {
			t.Errorf("%s: %v", location, err)
		}
	}
	if asked := g.Asked(); len(asked) != 0 {
		t.Errorf("asked %q", asked)
	}
	secure := storagetest.NewTLSGuard(t, server, kind)
	secure.Set(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(r.URL.String() + "\n"))
		return true
	})
	for what, endpoint := range map[string]string{"refused": secure.URL, "unreachable": "https://127.0.0.1:1"} {
		_, err := azblob.Open(t.Context(), place(t, endpoint, "container", ""), azblob.Options{
			Credentials: credentials(t, "sas_token=sv=1&sig=s3cr3t"),
			TLS:         secure.Client().Transport.(*http.Transport).TLSClientConfig,
		})
		if !errors.Is(err, storage.ErrUnavailable) || strings.Contains(err.Error(), "s3cr3t") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

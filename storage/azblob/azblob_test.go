package azblob_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/storagetest"
)

var containerCount atomic.Int64

// containerClient returns the library's own client for a container of the server.
func containerClient(t *testing.T, name string) *container.Client {
	t.Helper()
	key, err := container.NewSharedKeyCredential(account, accountKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(server+"/"+account+"/"+name, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newContainer makes a container of the server.
func newContainer(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("container-%d", containerCount.Add(1))
	if _, err := containerClient(t, name).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return name
}

func removeContainer(t *testing.T, name string) {
	t.Helper()
	if _, err := containerClient(t, name).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func location(endpoint, container, prefix string) string {
	return azblob.Scheme + account + "/" + container + "/" + prefix + "?endpoint=" + endpoint + "/" + account
}

func place(t *testing.T, endpoint, container, prefix string) azblob.Place {
	t.Helper()
	p, err := azblob.Parse(location(endpoint, container, prefix))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func openWith(t *testing.T, endpoint, container, prefix string, o azblob.Options) *azblob.Backend {
	t.Helper()
	b, err := azblob.Open(t.Context(), place(t, endpoint, container, prefix), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func open(t *testing.T, endpoint, container, prefix string) *azblob.Backend {
	t.Helper()
	return openWith(t, endpoint, container, prefix, azblob.Options{})
}

// kind returns the kind of a request.
func kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Get("comp") == "block":
		return storagetest.Part
	case q.Get("comp") == "blocklist":
		return storagetest.Complete
	case q.Get("comp") == "list":
		return storagetest.List
	case q.Has("comp"):
		return storagetest.Other
	case r.Method == http.MethodHead:
		return storagetest.Head
	case r.Method == http.MethodGet:
		return storagetest.Get
	case r.Method == http.MethodPut:
		return storagetest.Put
	}
	return storagetest.Remove
}

// fail answers as the service does.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Ms-Error-Code", code)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

func service() storagetest.Service {
	return storagetest.Service{
		Server: server, NewBucket: newContainer, RemoveBucket: removeContainer, Kind: kind, Fail: fail,
		Open: func(t *testing.T, url, bucket, prefix string) storage.Backend {
			t.Helper()
			return open(t, url, bucket, prefix)
		},
		Location: location,
		Denied:   "AuthorizationPermissionMismatch", Busy: "ServerBusy",
	}
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend { return open(t, server, newContainer(t), "clusters/one") })
}

func TestService(t *testing.T) { storagetest.RunService(t, service()) }

// flipped changes a bit of what is read.
type flipped struct{ io.ReadCloser }

func (f flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if n > 0 {
		p[0] ^= 1
	}
	return n, err
}

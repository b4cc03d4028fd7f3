package snapshots

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/place"
	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// TestMayMake: an agent makes no store in a directory that may be a mount point.
func TestMayMake(t *testing.T) {
	o := &Options{StateDir: "/state"}
	for location, ok := range map[string]bool{
		"gs://bucket": true, place.Default: true, "dir:/state/store": true, "dir:/state/../mnt": false, "dir:/mnt": false,
		"s3://bucket":   true,
		"azblob://a/c":  true,
		"dir:/stateful": false,
	} {
		if o.mayMake(location) != ok {
			t.Errorf("%q: %v", location, !ok)
		}
	}
}

// TestS3Store: a store in S3 is one that does not let a second writer overwrite the first. It is opened with the
// credentials in the bucket's own file, or not at all if they cannot be used.
func TestS3Store(t *testing.T) {
	for overwrites, want := range map[bool]error{false: nil, true: bucket.ErrOverwrites} {
		server := httptest.NewServer(&s3Server{overwrites: overwrites, objects: make(map[string][]byte)})
		defer server.Close()
		location := "s3://bucket/p?region=r&endpoint=" + server.URL
		t.Setenv("AWS_ACCESS_KEY_ID", "id")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		if _, made, err := place.MakeStore(t.Context(), location, false); !errors.Is(err, want) || made != (want == nil) {
			t.Errorf("make, where objects are overwritten: %v: %v, %v", overwrites, made, err)
		}
		r := newRemote(location, func() {})
		if _, err := r.Get(t.Context()); !errors.Is(err, want) {
			t.Errorf("open, where objects are overwritten: %v: %v", overwrites, err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "bucket.ini"), []byte("no"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (place.Access{Credentials: dir}).Open(t.Context(), location); !errors.Is(err, storage.ErrDenied) ||
			!strings.Contains(err.Error(), "bucket.ini") {
			t.Errorf("with a file that cannot be used: %v", err)
		}
	}
}

// TestAzureStore: the same holds for a store in Azure Blob Storage.
func TestAzureStore(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acc")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for overwrites, want := range map[bool]error{false: nil, true: bucket.ErrOverwrites} {
		server := httptest.NewServer(&azureServer{overwrites: overwrites, objects: make(map[string][]byte)})
		defer server.Close()
		location := "azblob://acc/con/p?endpoint=" + server.URL
		if _, made, err := place.MakeStore(t.Context(), location, false); !errors.Is(err, want) || made != (want == nil) {
			t.Errorf("make, where objects are overwritten: %v: %v, %v", overwrites, made, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "acc.con.ini"), []byte("no"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := place.Access{Credentials: dir}
		if _, err := a.Open(t.Context(), location); !errors.Is(err, storage.ErrDenied) ||
			!strings.Contains(err.Error(), "acc.con.ini") {
			t.Errorf("with a file that cannot be used: %v", err)
		}
		b, err := a.Open(t.Context(), "azblob://acc/other/p?endpoint="+server.URL)
		if err != nil {
			t.Fatalf("with another container's file: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// s3Server answers as a bucket of S3 does, as far as a store is made and opened there.
type s3Server struct {
	overwrites bool // objects whose creation has the condition that they do not exist

	mu      sync.Mutex
	objects map[string][]byte
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/xml")
	old, exists := s.objects[r.URL.Path]
	q := r.URL.Query()
	creates := r.Method == http.MethodPut && !q.Has("partNumber") || r.Method == http.MethodPost && q.Has("uploadId")
	switch {
	case creates && exists && !s.overwrites && r.Header.Get("If-None-Match") == "*":
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, "<Error><Code>PreconditionFailed</Code></Error>")
	case q.Has("list-type"):
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	case r.Method == http.MethodPost:
		_, _ = io.WriteString(w, "<R><Bucket>bucket</Bucket><UploadId>u</UploadId></R>")
	case creates:
		s.objects[r.URL.Path], _ = io.ReadAll(r.Body)
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", "x")
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		_, _ = w.Write(old)
	}
}

// azureServer answers as a container of Azure's does, as far as a store is made and opened there.
type azureServer s3Server

func (s *azureServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fails := func(status int, code string) {
		w.Header().Set("X-Ms-Error-Code", code)
		w.WriteHeader(status)
	}
	old, exists := s.objects[r.URL.Path]
	switch comp := r.URL.Query().Get("comp"); {
	case comp == "list":
		_, _ = io.WriteString(w, "<EnumerationResults><Blobs></Blobs></EnumerationResults>")
	case comp == "block":
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut && exists && !s.overwrites && r.Header.Get("If-None-Match") == "*":
		fails(http.StatusConflict, "BlobAlreadyExists")
	case r.Method == http.MethodPut:
		if comp == "" {
			s.objects[r.URL.Path], _ = io.ReadAll(r.Body)
		}
		w.WriteHeader(http.StatusCreated)
	case !exists:
		fails(http.StatusNotFound, "BlobNotFound")
	default:
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		_, _ = w.Write(old)
	}
}

// TestNoCredentialsDirectory: credentials are in a directory.
func TestNoCredentialsDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Credentials: file}); !errors.Is(err, errkind.ErrInvalid) {
		t.Errorf("a file in place of the directory: %v", err)
	}
}

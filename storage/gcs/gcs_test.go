package gcs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	client "cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"diapause.dev/storage"
	"diapause.dev/storage/gcs"
	"diapause.dev/storage/storagetest"
)

var buckets atomic.Int64

// newBucket makes a bucket of the fake server.
func newBucket(t *testing.T) string {
	t.Helper()
	c, err := client.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	if err := c.Bucket(name).Create(t.Context(), "project", nil); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, bucket, prefix string, o ...option.ClientOption) *gcs.Backend {
	t.Helper()
	b, err := gcs.Open(t.Context(), bucket, prefix, o...)
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

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend { return open(t, newBucket(t), "clusters/one") })
}

func TestNoPrefix(t *testing.T) {
	b := open(t, newBucket(t), "")
	if err := b.Create(t.Context(), "a/b", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
}

// TestPrefixes: two stores in one bucket do not see each other, even if one's prefix begins with the other's.
func TestPrefixes(t *testing.T) {
	bucket := newBucket(t)
	one, other := open(t, bucket, "store"), open(t, bucket, "store-b/")
	if err := other.Create(t.Context(), "o", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	err := one.List(t.Context(), "", func(o storage.ObjectInfo) error { return errors.New(o.Name) })
	if err != nil {
		t.Error(err)
	}
	if other.Location() != "gs://"+bucket+"/store-b" {
		t.Error(other.Location())
	}
}

func TestOpenFails(t *testing.T) {
	if _, err := gcs.Open(t.Context(), "no-such-bucket", "x"); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("no bucket: %v", err)
	}
	if _, err := gcs.Open(t.Context(), newBucket(t), "../x"); !errors.Is(err, storage.ErrInvalidName) {
		t.Errorf("bad prefix: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	b := open(t, newBucket(t), "x")
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1") // nobody listens there
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := gcs.Open(ctx, "b", "x"); err == nil {
		t.Error("opened a store that is not there")
	}
	if _, err := b.Stat(t.Context(), "o"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("the other store: %v", err)
	}
}

// TestLargeObject sends an object in one request from one buffer.
func TestLargeObject(t *testing.T) {
	b := open(t, newBucket(t), "x")
	data := storagetest.Bytes(1, 20<<20)
	if err := b.Create(t.Context(), "large", bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3<<20)
	if err := b.ReadAt(t.Context(), "large", got, 11<<20); err != nil || !bytes.Equal(got, data[11<<20:14<<20]) {
		t.Errorf("wrong bytes, error %v", err)
	}
}

// standIn is a service that lists an empty bucket and passes all other requests to handle.
func standIn(t *testing.T, handle http.HandlerFunc) *gcs.Backend {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/o") {
			_, _ = io.WriteString(w, `{"kind":"storage#objects"}`)
			return
		}
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return open(t, "bucket", "p", option.WithEndpoint(server.URL+"/storage/v1/"), option.WithoutAuthentication())
}

func attributes(w http.ResponseWriter, metadata map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "storage#object", "bucket": "bucket", "name": "p/one", "generation": "7", "size": "1", "metadata": metadata,
	})
}

func fail(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":"as the test wants it"}}`, code)
}

func TestDeleteGeneration(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	for _, test := range []struct {
		status int
		kind   error
	}{
		{http.StatusNoContent, nil},
		{http.StatusPreconditionFailed, storage.ErrExists},
		{http.StatusNotFound, storage.ErrNotFound},
	} {
		var asked []string
		b := standIn(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet:
				attributes(w, nil)
			case test.kind != nil:
				asked = append(asked, r.Method+" "+r.URL.Query().Get("ifGenerationMatch"))
				fail(w, test.status)
			default:
				asked = append(asked, r.Method+" "+r.URL.Query().Get("ifGenerationMatch"))
				w.WriteHeader(test.status)
			}
		})
		err := b.Delete(t.Context(), "one")
		if !errors.Is(err, test.kind) {
			t.Errorf("status %d: error %v", test.status, err)
		}
		if len(asked) != 1 || asked[0] != "DELETE 7" {
			t.Errorf("status %d: asked %q", test.status, asked)
		}
	}
}

// TestCreateAnswerLost: the service takes an upload, but its answer is an error. The client repeats the upload, meets
// its own object, and succeeds. If it meets another's object, it does not.
func TestCreateAnswerLost(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	for _, own := range []bool{true, false} {
		var metadata map[string]string
		uploads := 0
		b := standIn(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				attributes(w, metadata)
				return
			}
			if r.URL.Query().Get("ifGenerationMatch") != "0" {
				t.Errorf("upload without the precondition: %s", r.URL)
			}
			body, _ := io.ReadAll(r.Body)
			uploads++
			if uploads > 1 {
				fail(w, http.StatusPreconditionFailed)
				return
			}
			if own {
				metadata = writerMetadata(t, body)
			}
			fail(w, http.StatusServiceUnavailable)
		})
		err := b.Create(t.Context(), "one", strings.NewReader("x"), 1)
		if own && err != nil || !own && !errors.Is(err, storage.ErrExists) {
			t.Errorf("own object %v: error %v", own, err)
		}
		if uploads != 2 {
			t.Errorf("own object %v: %d uploads", own, uploads)
		}
	}
}

// writerMetadata finds the metadata in the first part of a multipart upload.
func writerMetadata(t *testing.T, body []byte) map[string]string {
	t.Helper()
	var object struct{ Metadata map[string]string }
	start := bytes.IndexByte(body, '{')
	if start < 0 {
		t.Fatalf("no metadata in %q", body)
	}
	if err := json.NewDecoder(bytes.NewReader(body[start:])).Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object.Metadata
}

func TestKinds(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	for code, kind := range map[int]error{
		http.StatusNotFound:                     storage.ErrNotFound,
		http.StatusRequestedRangeNotSatisfiable: storage.ErrTruncated,
		http.StatusPreconditionFailed:           storage.ErrExists,
		http.StatusUnauthorized:                 storage.ErrDenied,
		http.StatusForbidden:                    storage.ErrDenied,
	} {
		b := standIn(t, func(w http.ResponseWriter, _ *http.Request) { fail(w, code) })
		if err := b.ReadAt(t.Context(), "one", make([]byte, 1), 0); !errors.Is(err, kind) {
			t.Errorf("status %d: %v", code, err)
		}
	}
}

// TestDenied: every operation reports a refusal, which may pass. Too many requests are reported as something else.
func TestDenied(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	reason := "forbidden"
	b := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"error":{"code":403,"message":"no","errors":[{"reason":%q}]}}`, reason)
	})
	all := func() map[string]error {
		_, stat := b.Stat(t.Context(), "one")
		_, readAll := b.ReadAll(t.Context(), "one", 10)
		return map[string]error{
			"stat": stat, "read all": readAll, "read": b.ReadAt(t.Context(), "one", make([]byte, 1), 0),
			"create":  b.Create(t.Context(), "one", strings.NewReader("x"), 1),
			"replace": b.Replace(t.Context(), "one", []byte("x")),
			"delete":  b.Delete(t.Context(), "one"),
		}
	}
	for op, err := range all() {
		if !errors.Is(err, storage.ErrDenied) || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v", op, err)
		}
	}
	reason = "rateLimitExceeded"
	for op, err := range all() {
		if op == "read" || op == "read all" {
			continue // an answer to a read of data has no reasons
		}
		if errors.Is(err, storage.ErrDenied) || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("too often: %s: %v", op, err)
		}
	}
}

// TestNoToken: if a node gives its agent no token, this counts as denied access, like a refusal of the service.
func TestNoToken(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			http.Error(w, "no", code)
		}))
		defer node.Close()
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(node.URL, "http://"))
		if _, err := gcs.Open(t.Context(), "bucket", "p", option.WithEndpoint(node.URL+"/storage/v1/")); !errors.Is(err,
			storage.ErrDenied) {
			t.Errorf("status %d: %v", code, err)
		}
	}
}

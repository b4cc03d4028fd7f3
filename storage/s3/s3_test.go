package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"diapause.dev/storage"
	"diapause.dev/storage/s3"
	"diapause.dev/storage/storagetest"
)

var bucketCount atomic.Int64

// newBucket makes a bucket of the honest server.
func newBucket(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", bucketCount.Add(1))
	if err := os.Mkdir(filepath.Join(buckets, name), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

func place(t *testing.T, endpoint, bucket, prefix string) s3.Place {
	t.Helper()
	p, err := s3.Parse(s3.Scheme + bucket + "/" + prefix + "?endpoint=" + endpoint + "&region=us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, endpoint, bucket, prefix string) *s3.Backend {
	t.Helper()
	b, err := s3.Open(t.Context(), place(t, endpoint, bucket, prefix), s3.Options{})
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

func wantContent(t *testing.T, b *s3.Backend, name string, want []byte) {
	t.Helper()
	got, err := b.ReadAll(t.Context(), name, int64(len(want)))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes other than the %d written, error %v", name, len(got), len(want), err)
	}
}

// unfinished returns how many uploads a bucket has that are not complete.
func unfinished(t *testing.T, bucket string) int {
	t.Helper()
	c, err := minio.NewCore(strings.TrimPrefix(honest, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "us-east-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.ListMultipartUploads(t.Context(), bucket, "", "", "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Uploads)
}

func service() storagetest.Service {
	return storagetest.Service{
		Server: honest, NewBucket: newBucket, Kind: kind, Fail: fail, Begins: true, Unfinished: unfinished,
		Open: func(t *testing.T, url, bucket, prefix string) storage.Backend {
			t.Helper()
			return open(t, url, bucket, prefix)
		},
		Location: func(url, bucket, prefix string) string {
			return "s3://" + bucket + "/" + prefix + "?region=us-east-1&endpoint=" + url
		},
		RemoveBucket: func(t *testing.T, bucket string) {
			t.Helper()
			if err := os.Rename(filepath.Join(buckets, bucket), filepath.Join(t.TempDir(), "away")); err != nil {
				t.Fatal(err)
			}
		},
		Denied: "AccessDenied", Busy: "SlowDown",
	}
}

func newGuard(t *testing.T, server string) *storagetest.Guard {
	t.Helper()
	return storagetest.NewGuard(t, server, kind)
}

// guarded returns a backend in a new bucket of the honest server, behind a guard.
func guarded(t *testing.T) (*storagetest.Guard, *s3.Backend, string) {
	t.Helper()
	g, bucket := newGuard(t, honest), newBucket(t)
	return g, open(t, g.URL, bucket, "p"), bucket
}

// createStream creates an object without saying how large it is.
func createStream(b *s3.Backend, ctx context.Context, name string, data []byte) error {
	return storagetest.CreateStream(ctx, b, name, data)
}

func TestService(t *testing.T) { storagetest.RunService(t, service()) }

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend { return open(t, honest, newBucket(t), "clusters/one") })
}

func TestOpenFails(t *testing.T) {
	if _, err := s3.Open(t.Context(), place(t, honest, "no-such-bucket", "x"), s3.Options{}); !errors.Is(err,
		storage.ErrUnavailable) || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("no bucket: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s3.Open(ctx, place(t, "http://127.0.0.1:1", "bucket", "x"), s3.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("without any patience: %v", err)
	}
}

// TestTLS: over TLS, too, the service can compare what it gets with its digest.
func TestTLS(t *testing.T) {
	g := storagetest.NewTLSGuard(t, honest, kind)
	b, err := s3.Open(t.Context(), place(t, g.URL, newBucket(t), "p"), s3.Options{
		TLS: g.Client().Transport.(*http.Transport).TLSClientConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		if k := kind(r); (k == storagetest.Put || k == storagetest.Part) && len(r.Header.Get("X-Amz-Content-Sha256")) != 64 {
			t.Errorf("%s without a digest", k)
		}
		return false
	})
	for _, size := range []int{100, storagetest.PartSize + 1} {
		data := storagetest.Bytes(1, size)
		if err := createStream(b, t.Context(), fmt.Sprint(size), data); err != nil {
			t.Fatal(err)
		}
		wantContent(t, b, fmt.Sprint(size), data)
	}
}

// TestConflict: a put is repeated that meets another request. A completion is not, and is no sign of an object.
func TestConflict(t *testing.T) {
	g, b, bucket := guarded(t)
	g.Set(service().Failing(storagetest.Put, 2, http.StatusConflict, "ConditionalRequestConflict"))
	if err := b.Create(t.Context(), "one", strings.NewReader("x"), 1); err != nil {
		t.Error(err)
	}
	if asked := g.Asked(); !slices.Equal(asked, []string{storagetest.Put, storagetest.Put, storagetest.Put}) {
		t.Errorf("asked %q", asked)
	}
	g.Set(service().Failing(storagetest.Complete, 1, http.StatusConflict, "ConditionalRequestConflict"))
	err := createStream(b, t.Context(), "two", storagetest.Bytes(1, storagetest.PartSize+1))
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrExists) {
		t.Errorf("a completion: %v", err)
	}
	want := []string{storagetest.Begin, storagetest.Part, storagetest.Part, storagetest.Complete, storagetest.Abort}
	if asked := g.Asked(); !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	if n := unfinished(t, bucket); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// TestCompletionFailsLate: a completion may fail after the service has begun to answer that it succeeds.
func TestCompletionFailsLate(t *testing.T) {
	g, b, _ := guarded(t)
	g.Set(service().Failing(storagetest.Complete, 1, http.StatusOK, "PreconditionFailed"))
	err := createStream(b, t.Context(), "one", storagetest.Bytes(1, storagetest.PartSize+1))
	if !errors.Is(err, storage.ErrExists) {
		t.Error(err)
	}
}

// TestNodeRights: with the rights that the documentation gives to nodes, snapshots are written and read, and nothing is
// overwritten or deleted.
func TestNodeRights(t *testing.T) {
	g, b, _ := guarded(t)
	g.Set(ofNode)
	storagetest.WantNode(t, b)
	if err := b.Replace(t.Context(), "note", []byte("second")); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("replace: %v", err)
	}
	wantContent(t, b, "note", []byte("first"))
}

// TestHostileOverwrites: a service is known that overwrites what it shall only create, in a put, in a completion, or in
// both. One that does not is not accused, and nothing changes there.
func TestHostileOverwrites(t *testing.T) {
	strip := newGuard(t, lying)
	strip.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("If-None-Match")
		return false
	})
	for _, test := range []struct {
		name, endpoint, bucket string
		lies                   []string
	}{
		{"honest", honest, newBucket(t), nil},
		{"completion", lying, "one", []string{"the completion"}},
		{"both", strip.URL, "two", []string{"a put", "the completion"}},
	} {
		b := open(t, test.endpoint, test.bucket, "p")
		storagetest.WantLies(t, test.name, b, []string{"a put", "the completion"}, test.lies)
	}
}

// TestKinds: every operation reports what the service answers as the kind that it is.
func TestKinds(t *testing.T) {
	service().WantKinds(t, []storagetest.Answered{
		{http.StatusNotFound, "NoSuchKey", storage.ErrNotFound},
		{http.StatusNotFound, "NoSuchBucket", storage.ErrUnavailable},
		{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", storage.ErrTruncated},
		{http.StatusUnauthorized, "AccessDenied", storage.ErrDenied},
		{http.StatusForbidden, "SignatureDoesNotMatch", storage.ErrDenied},
		{http.StatusForbidden, "RequestTimeTooSkewed", storage.ErrUnavailable},
		{http.StatusForbidden, "QuotaExceeded", storage.ErrNoSpace},
		{http.StatusBadRequest, "InvalidToken", storage.ErrDenied},
		{http.StatusInsufficientStorage, "", storage.ErrNoSpace},
	})
}

package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
	"diapause.dev/storage/s3"
	"diapause.dev/storage/storagetest"
)

// partSize is the size of the parts in which an object of unknown size is sent.
const partSize = 16 << 20

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

// guarded returns a backend in a new bucket of the honest server, behind a guard.
func guarded(t *testing.T) (*guard, *s3.Backend, string) {
	t.Helper()
	g, bucket := newGuard(t, honest), newBucket(t)
	return g, open(t, g.URL, bucket, "p"), bucket
}

// stream yields a slice in odd pieces and does not tell how long it is.
type stream struct{ r io.Reader }

func (s stream) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 9999)]) }

// createStream creates an object without saying how large it is.
func createStream(b *s3.Backend, ctx context.Context, name string, data []byte) error {
	return b.Create(ctx, name, stream{bytes.NewReader(data)}, -1)
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

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend { return open(t, honest, newBucket(t), "clusters/one") })
}

// TestPrefixes: two stores in one bucket do not see each other, even if one's prefix begins with the other's.
func TestPrefixes(t *testing.T) {
	bucket := newBucket(t)
	one, other := open(t, honest, bucket, "store"), open(t, honest, bucket, "store-b/")
	if err := other.Create(t.Context(), "o", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	err := one.List(t.Context(), "", func(o storage.ObjectInfo) error { return errors.New(o.Name) })
	if err != nil {
		t.Error(err)
	}
	if want := "s3://" + bucket + "/store-b?region=us-east-1&endpoint=" + honest; other.Location() != want {
		t.Error(other.Location())
	}
	whole := open(t, honest, newBucket(t), "")
	if err := whole.Create(t.Context(), "a/b", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Stat(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
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

// TestParts: streams whose size is not known arrive whole, in one request or in parts.
func TestParts(t *testing.T) {
	g, b, bucket := guarded(t)
	for _, test := range []struct {
		size int
		want []string
	}{
		{0, []string{put}},
		{partSize, []string{put}},
		{partSize + 1, []string{begin, part, part, complete}},
		{2*partSize + 5, []string{begin, part, part, part, complete}},
	} {
		g.set(nil)
		name, data := fmt.Sprint("o", test.size), storagetest.Bytes(uint64(test.size), test.size)
		if err := createStream(b, t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
		if asked := g.asked(); !slices.Equal(asked, test.want) {
			t.Errorf("%d bytes: asked %q, want %q", test.size, asked, test.want)
		}
		wantContent(t, b, name, data)
	}
	if n := unfinished(t, bucket); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// TestOneRequest: an object of a known size is sent in one request.
func TestOneRequest(t *testing.T) {
	g, b, _ := guarded(t)
	data := storagetest.Bytes(1, 20<<20)
	g.set(nil)
	if err := b.Create(t.Context(), "large", bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if asked := g.asked(); !slices.Equal(asked, []string{put}) {
		t.Errorf("asked %q", asked)
	}
	got := make([]byte, 3<<20)
	if err := b.ReadAt(t.Context(), "large", got, 11<<20); err != nil || !bytes.Equal(got, data[11<<20:14<<20]) {
		t.Errorf("wrong bytes, error %v", err)
	}
}

// TestTLS: over TLS, too, the service can compare what it gets with its digest.
func TestTLS(t *testing.T) {
	g := guardOf(t, honest)
	g.Server = httptest.NewTLSServer(g)
	defer g.Close()
	b, err := s3.Open(t.Context(), place(t, g.URL, newBucket(t), "p"), s3.Options{
		TLS: g.Client().Transport.(*http.Transport).TLSClientConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g.set(func(w http.ResponseWriter, r *http.Request) bool {
		if k := kind(r); (k == put || k == part) && len(r.Header.Get("X-Amz-Content-Sha256")) != 64 {
			t.Errorf("%s without a digest", k)
		}
		return false
	})
	for _, size := range []int{100, partSize + 1} {
		data := storagetest.Bytes(1, size)
		if err := createStream(b, t.Context(), fmt.Sprint(size), data); err != nil {
			t.Fatal(err)
		}
		wantContent(t, b, fmt.Sprint(size), data)
	}
}

// TestPartsRace: of several uploads in parts exactly one makes the object, and the others leave nothing.
func TestPartsRace(t *testing.T) {
	bucket := newBucket(t)
	b := open(t, honest, bucket, "p")
	const size = partSize + 1000
	var errs [4]error
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = createStream(b, t.Context(), "one", storagetest.Bytes(uint64(i), size)) })
	}
	group.Wait()
	winner := slices.Index(errs[:], nil)
	if winner < 0 {
		t.Fatal(errs)
	}
	for i, err := range errs {
		if i != winner && err == nil {
			t.Error("two creators succeeded")
		}
	}
	wantContent(t, b, "one", storagetest.Bytes(uint64(winner), size))
	if err := createStream(b, t.Context(), "one", storagetest.Bytes(9, size)); !errors.Is(err, storage.ErrExists) {
		t.Errorf("once more: %v", err)
	}
	if n := unfinished(t, bucket); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

var errReader = errors.New("reader broke")

type brokenReader struct{ before func() }

func (r brokenReader) Read([]byte) (int, error) {
	r.before()
	return 0, errReader
}

// TestPartsGivenUp: if the reader fails, or the caller gives up, after some parts were sent, nothing is left.
func TestPartsGivenUp(t *testing.T) {
	g, b, bucket := guarded(t)
	data := bytes.NewReader(storagetest.Bytes(1, partSize+1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, test := range []struct {
		before func()
		want   error
	}{{func() {}, errReader}, {cancel, errReader}} {
		data.Reset(storagetest.Bytes(1, partSize+1))
		g.set(nil)
		err := b.Create(ctx, "one", io.MultiReader(stream{data}, brokenReader{test.before}), -1)
		if !errors.Is(err, test.want) {
			t.Error(err)
		}
		if asked := g.asked(); !slices.Equal(asked, []string{begin, part, abort}) {
			t.Errorf("asked %q", asked)
		}
	}
	if err := createStream(b, ctx, "one", storagetest.Bytes(1, 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := b.Stat(t.Context(), "one"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("the object: %v", err)
	}
	if n := unfinished(t, bucket); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// TestPartsOfDead: nobody sees what a process has uploaded that died before the completion, and it is in nobody's way.
func TestPartsOfDead(t *testing.T) {
	g, b, bucket := guarded(t)
	dead := func(w http.ResponseWriter, r *http.Request) bool {
		if kind(r) == complete || kind(r) == abort {
			fail(w, http.StatusForbidden, "AccessDenied")
		}
		return kind(r) == complete || kind(r) == abort
	}
	g.set(dead)
	data := storagetest.Bytes(1, partSize+1)
	if err := createStream(b, t.Context(), "one", data); err == nil {
		t.Error("created")
	}
	g.set(nil)
	if n := unfinished(t, bucket); n != 1 {
		t.Errorf("%d uploads are left, want 1", n)
	}
	err := b.List(t.Context(), "", func(o storage.ObjectInfo) error { return errors.New(o.Name) })
	if err != nil {
		t.Error(err)
	}
	if err := createStream(b, t.Context(), "one", data); err != nil {
		t.Error(err)
	}
	wantContent(t, b, "one", data)
}

// TestCreateAnswerLost: the service makes the object, but its answer is an error. The client repeats the request, meets
// its own object, and succeeds. If it meets another's object, it does not.
func TestCreateAnswerLost(t *testing.T) {
	g, b, _ := guarded(t)
	for what, data := range map[string][]byte{put: []byte("x"), complete: storagetest.Bytes(1, partSize+1)} {
		g.set(g.lost(what))
		if err := createStream(b, t.Context(), what, data); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		wantContent(t, b, what, data)
		g.set(failing(what, 1, http.StatusServiceUnavailable, "SlowDown"))
		if err := createStream(b, t.Context(), what, data); !errors.Is(err, storage.ErrExists) {
			t.Errorf("%s, another's object: %v", what, err)
		}
	}
}

// TestConflict: a put is repeated that meets another request. A completion is not, and is no sign of an object.
func TestConflict(t *testing.T) {
	g, b, bucket := guarded(t)
	g.set(failing(put, 2, http.StatusConflict, "ConditionalRequestConflict"))
	if err := b.Create(t.Context(), "one", strings.NewReader("x"), 1); err != nil {
		t.Error(err)
	}
	if asked := g.asked(); !slices.Equal(asked, []string{put, put, put}) {
		t.Errorf("asked %q", asked)
	}
	g.set(failing(complete, 1, http.StatusConflict, "ConditionalRequestConflict"))
	err := createStream(b, t.Context(), "two", storagetest.Bytes(1, partSize+1))
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrExists) {
		t.Errorf("a completion: %v", err)
	}
	if asked := g.asked(); !slices.Equal(asked, []string{begin, part, part, complete, abort}) {
		t.Errorf("asked %q", asked)
	}
	if n := unfinished(t, bucket); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// TestCompletionFailsLate: a completion may fail after the service has begun to answer that it succeeds.
func TestCompletionFailsLate(t *testing.T) {
	g, b, _ := guarded(t)
	g.set(failing(complete, 1, http.StatusOK, "PreconditionFailed"))
	err := createStream(b, t.Context(), "one", storagetest.Bytes(1, partSize+1))
	if !errors.Is(err, storage.ErrExists) {
		t.Error(err)
	}
}

// TestNodeRights: with the rights that the documentation gives to nodes, snapshots are written and read, and nothing is
// overwritten or deleted.
func TestNodeRights(t *testing.T) {
	g, b, _ := guarded(t)
	g.set(ofNode)
	s := storagetest.OpenStore(t, b)
	image := storagetest.SmallImage(1)
	m := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, image)
	storagetest.WantImage(t, m, image, s)
	if err := createStream(b, t.Context(), "large", storagetest.Bytes(1, partSize+1)); err != nil {
		t.Error(err)
	}
	if err := b.CheckCreateOnly(t.Context(), storage.Marker); err != nil {
		t.Error(err)
	}
	if err := b.Replace(t.Context(), "note", []byte("first")); err != nil {
		t.Errorf("an object that is not there: %v", err)
	}
	for what, err := range map[string]error{
		"replace": b.Replace(t.Context(), "note", []byte("second")), "delete": b.Delete(t.Context(), "note"),
	} {
		if !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantContent(t, b, "note", []byte("first"))
}

// TestHostileOverwrites: a service is known that overwrites what it shall only create, in a put, in a completion, or in
// both. One that does not is not accused, and nothing changes there.
func TestHostileOverwrites(t *testing.T) {
	strip := newGuard(t, lying)
	strip.set(func(_ http.ResponseWriter, r *http.Request) bool {
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
		if err := b.Create(t.Context(), "object", strings.NewReader("what was there"), 14); err != nil {
			t.Fatal(err)
		}
		err := b.CheckCreateOnly(t.Context(), "object")
		if errors.Is(err, bucket.ErrOverwrites) != (test.lies != nil) || test.lies == nil && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, lie := range []string{"a put", "the completion"} {
			if err != nil && strings.Contains(err.Error(), lie) != slices.Contains(test.lies, lie) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
		wantContent(t, b, "object", []byte("what was there"))
	}
}

// TestKinds: every operation reports what the service answers as the kind that it is.
func TestKinds(t *testing.T) {
	g, b, _ := guarded(t)
	for _, test := range []struct {
		status int
		code   string
		kind   error
	}{
		{http.StatusNotFound, "NoSuchKey", storage.ErrNotFound},
		{http.StatusNotFound, "NoSuchBucket", storage.ErrUnavailable},
		{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", storage.ErrTruncated},
		{http.StatusUnauthorized, "AccessDenied", storage.ErrDenied},
		{http.StatusForbidden, "SignatureDoesNotMatch", storage.ErrDenied},
		{http.StatusForbidden, "RequestTimeTooSkewed", storage.ErrUnavailable},
		{http.StatusForbidden, "QuotaExceeded", storage.ErrNoSpace},
		{http.StatusBadRequest, "InvalidToken", storage.ErrDenied},
		{http.StatusInsufficientStorage, "", storage.ErrNoSpace},
	} {
		g.set(func(w http.ResponseWriter, _ *http.Request) bool {
			fail(w, test.status, test.code)
			return true
		})
		err := b.ReadAt(t.Context(), "one", make([]byte, 1), 0)
		_, readAll := b.ReadAll(t.Context(), "one", 1)
		for what, err := range map[string]error{
			"read": err, "read all": readAll, "replace": b.Replace(t.Context(), "one", nil),
			"create": b.Create(t.Context(), "one", strings.NewReader("x"), 1),
			"list":   b.List(t.Context(), "", nil),
		} {
			if !errors.Is(err, test.kind) {
				t.Errorf("%s, status %d, %s: %v", what, test.status, test.code, err)
			}
		}
	}
}

// TestDenied: every operation reports a refusal, which may pass.
func TestDenied(t *testing.T) {
	g, b, _ := guarded(t)
	g.set(func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, http.StatusForbidden, "AccessDenied")
		return true
	})
	_, stat := b.Stat(t.Context(), "one")
	_, readAll := b.ReadAll(t.Context(), "one", 10)
	for what, err := range map[string]error{
		"stat": stat, "read all": readAll, "read": b.ReadAt(t.Context(), "one", make([]byte, 1), 0),
		"create":         b.Create(t.Context(), "one", strings.NewReader("x"), 1),
		"create a large": createStream(b, t.Context(), "one", make([]byte, partSize+1)),
		"replace":        b.Replace(t.Context(), "one", []byte("x")),
		"delete":         b.Delete(t.Context(), "one"),
		"list":           b.List(t.Context(), "", nil),
	} {
		if !errors.Is(err, storage.ErrDenied) || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

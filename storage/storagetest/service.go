package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// PartSize is the size of the parts in which an object of unknown size is sent.
const PartSize = 16 << 20

// Service is a service for objects, as the tests of a backend over one see it.
type Service struct {
	Server       string                    // the URL of a real server
	NewBucket    func(t *testing.T) string // makes a bucket there
	RemoveBucket func(t *testing.T, bucket string)
	Kind         func(r *http.Request) string                         // of a request
	Fail         func(w http.ResponseWriter, status int, code string) // answers as the service does
	Open         func(t *testing.T, url, bucket, prefix string) storage.Backend
	Location     func(url, bucket, prefix string) string // in full
	// Begins says that an upload in parts has a request that begins it, and one that aborts it.
	Begins bool
	// Unfinished returns how many uploads a bucket has that are not complete. It is nil if that cannot be asked.
	Unfinished func(t *testing.T, bucket string) int
	// Codes of errors.
	Denied, Busy string
}

// RunService runs the tests that every backend over such a service has to pass, besides those of Run.
func RunService(t *testing.T, s Service) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Service)
	}{
		{"Prefixes", testPrefixes},
		{"Parts", testParts},
		{"OneRequest", testOneRequest},
		{"PartsRace", testPartsRace},
		{"PartsGivenUp", testPartsGivenUp},
		{"PartsOfDead", testPartsOfDead},
		{"AnswerLost", testAnswerLost},
		{"CutRead", testCutRead},
		{"Gone", testGone},
		{"Denied", testDenied},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// Guarded returns a backend in a new bucket, behind a guard.
func (s Service) Guarded(t *testing.T) (*Guard, storage.Backend, string) {
	t.Helper()
	g, name := NewGuard(t, s.Server, s.Kind), s.NewBucket(t)
	return g, s.Open(t, g.URL, name, "p"), name
}

// Failing returns an answer to the first n requests of a kind.
func (s Service) Failing(what string, n, status int, code string) Answer {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if s.Kind(r) != what || n == 0 {
			return false
		}
		n--
		s.Fail(w, status, code)
		return true
	}
}

// Lost returns an answer by which the server does the first request of a kind, and the client never learns it.
func (s Service) Lost(g *Guard, what string) Answer {
	var once sync.Once
	return func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if s.Kind(r) == what {
			once.Do(func() {
				g.proxy.ServeHTTP(httptest.NewRecorder(), r)
				s.Fail(w, http.StatusServiceUnavailable, s.Busy)
				answered = true
			})
		}
		return answered
	}
}

// requests returns those of an upload: parts, and then last.
func (s Service) requests(parts int, last ...string) []string {
	all := slices.Repeat([]string{Part}, parts)
	if s.Begins {
		return append(append([]string{Begin}, all...), last...)
	}
	return append(all, slices.DeleteFunc(last, func(kind string) bool { return kind == Abort })...)
}

func (s Service) wantUnfinished(t *testing.T, name string, want int) {
	t.Helper()
	if s.Unfinished == nil {
		return
	}
	if n := s.Unfinished(t, name); n != want {
		t.Errorf("%d uploads are left, want %d", n, want)
	}
}

// stream yields a slice in odd pieces and does not tell how long it is.
type stream struct{ r io.Reader }

func (s stream) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 9999)]) }

// CreateStream creates an object without saying how large it is.
func CreateStream(ctx context.Context, b storage.Backend, name string, data []byte) error {
	return b.Create(ctx, name, stream{bytes.NewReader(data)}, -1)
}

// testPrefixes: two stores in one bucket do not see each other, even if one's prefix begins with the other's.
func testPrefixes(t *testing.T, s Service) {
	name := s.NewBucket(t)
	one, other := s.Open(t, s.Server, name, "store"), s.Open(t, s.Server, name, "store-b/")
	create(t, other, "o", []byte("x"))
	if all := names(t, one, ""); len(all) != 0 {
		t.Errorf("it sees %q", all)
	}
	if want := s.Location(s.Server, name, "store-b"); other.Location() != want {
		t.Error(other.Location())
	}
	whole := s.Open(t, s.Server, s.NewBucket(t), "")
	create(t, whole, "a/b", []byte("x"))
	wantContent(t, whole, "a/b", []byte("x"))
}

// testParts: streams whose size is not known arrive whole, in one request or in parts.
func testParts(t *testing.T, s Service) {
	g, b, name := s.Guarded(t)
	for _, test := range []struct {
		size int
		want []string
	}{
		{0, []string{Put}},
		{PartSize, []string{Put}},
		{PartSize + 1, s.requests(2, Complete)},
		{2*PartSize + 5, s.requests(3, Complete)},
	} {
		g.Set(nil)
		name, data := fmt.Sprint("o", test.size), Bytes(uint64(test.size), test.size)
		if err := CreateStream(t.Context(), b, name, data); err != nil {
			t.Fatal(err)
		}
		if asked := g.Asked(); !slices.Equal(asked, test.want) {
			t.Errorf("%d bytes: asked %q, want %q", test.size, asked, test.want)
		}
		wantContent(t, b, name, data)
	}
	s.wantUnfinished(t, name, 0)
}

// testOneRequest: an object of a known size is sent in one request.
func testOneRequest(t *testing.T, s Service) {
	g, b, _ := s.Guarded(t)
	data := Bytes(1, 20<<20)
	g.Set(nil)
	create(t, b, "large", data)
	if asked := g.Asked(); !slices.Equal(asked, []string{Put}) {
		t.Errorf("asked %q", asked)
	}
	got := make([]byte, 3<<20)
	if err := b.ReadAt(t.Context(), "large", got, 11<<20); err != nil || !bytes.Equal(got, data[11<<20:14<<20]) {
		t.Errorf("wrong bytes, error %v", err)
	}
}

// testPartsRace: of several uploads in parts exactly one makes the object, and the others leave nothing.
func testPartsRace(t *testing.T, s Service) {
	name := s.NewBucket(t)
	b := s.Open(t, s.Server, name, "p")
	const size = PartSize + 1000
	var errs [4]error
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = CreateStream(t.Context(), b, "one", Bytes(uint64(i), size)) })
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
	wantContent(t, b, "one", Bytes(uint64(winner), size))
	if err := CreateStream(t.Context(), b, "one", Bytes(9, size)); !errors.Is(err, storage.ErrExists) {
		t.Errorf("once more: %v", err)
	}
	s.wantUnfinished(t, name, 0)
}

// breaking is a reader that fails, after it has called before.
type breaking struct{ before func() }

func (r breaking) Read([]byte) (int, error) {
	r.before()
	return 0, errReader
}

// testPartsGivenUp: if the reader fails, or the caller gives up, after some parts were sent, nothing is left.
func testPartsGivenUp(t *testing.T, s Service) {
	g, b, name := s.Guarded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, before := range []func(){func() {}, cancel} {
		data := bytes.NewReader(Bytes(1, PartSize+1))
		g.Set(nil)
		err := b.Create(ctx, "one", io.MultiReader(stream{data}, breaking{before}), -1)
		wantKind(t, "create", err, errReader)
		if asked := g.Asked(); !slices.Equal(asked, s.requests(1, Abort)) {
			t.Errorf("asked %q", asked)
		}
	}
	wantKind(t, "afterwards", CreateStream(ctx, b, "one", Bytes(1, 5)), context.Canceled)
	_, err := b.Stat(t.Context(), "one")
	wantKind(t, "the object", err, storage.ErrNotFound)
	s.wantUnfinished(t, name, 0)
}

// testPartsOfDead: nobody sees what a process has uploaded that died before the completion, and it is in nobody's way.
func testPartsOfDead(t *testing.T, s Service) {
	g, b, name := s.Guarded(t)
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		dead := s.Kind(r) == Complete || s.Kind(r) == Abort
		if dead {
			s.Fail(w, http.StatusForbidden, s.Denied)
		}
		return dead
	})
	data := Bytes(1, PartSize+1)
	if err := CreateStream(t.Context(), b, "one", data); err == nil {
		t.Error("created")
	}
	g.Set(nil)
	s.wantUnfinished(t, name, 1)
	if all := names(t, b, ""); len(all) != 0 {
		t.Errorf("it is seen: %q", all)
	}
	if err := CreateStream(t.Context(), b, "one", data); err != nil {
		t.Error(err)
	}
	wantContent(t, b, "one", data)
}

// testAnswerLost: the service makes the object, but its answer is an error. The client repeats the request, meets its
// own object, and succeeds. If it meets another's object, it does not.
func testAnswerLost(t *testing.T, s Service) {
	g, b, _ := s.Guarded(t)
	for what, data := range map[string][]byte{Put: []byte("x"), Complete: Bytes(1, PartSize+1)} {
		g.Set(s.Lost(g, what))
		if err := CreateStream(t.Context(), b, what, data); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		wantContent(t, b, what, data)
		g.Set(s.Failing(what, 1, http.StatusServiceUnavailable, s.Busy))
		err := CreateStream(t.Context(), b, what, data)
		wantKind(t, what+", another's object", err, storage.ErrExists)
	}
}

// testCutRead: an answer that ends too early is asked for again, and is no sign that the object is short.
func testCutRead(t *testing.T, s Service) {
	g, b, _ := s.Guarded(t)
	data := Bytes(1, 1<<20)
	create(t, b, "one", data)
	var cuts atomic.Int64
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		if s.Kind(r) != Get || cuts.Add(-1) < 0 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data[:1000])
		return true
	})
	cuts.Store(2)
	got := make([]byte, len(data))
	if err := b.ReadAt(t.Context(), "one", got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("wrong bytes, error %v", err)
	}
	cuts.Store(100)
	err := b.ReadAt(t.Context(), "one", got, 0)
	_, all := b.ReadAll(t.Context(), "one", int64(len(data)))
	for _, err := range []error{err, all} {
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrTruncated) {
			t.Error(err)
		}
	}
}

// testGone: if the bucket is gone, or another server answers in the service's place, no object counts as gone.
func testGone(t *testing.T, s Service) {
	g, b, name := s.Guarded(t)
	create(t, b, "one", []byte("x"))
	s.RemoveBucket(t, name)
	wantGone(t, "no bucket", b)
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		http.NotFound(w, r)
		return true
	})
	wantGone(t, "another server", b)
}

func wantGone(t *testing.T, what string, b storage.Backend) {
	t.Helper()
	_, stat := b.Stat(t.Context(), "one")
	_, all := b.ReadAll(t.Context(), "one", 1)
	for op, err := range map[string]error{
		"stat": stat, "read all": all, "delete": b.Delete(t.Context(), "one"),
		"read": b.ReadAt(t.Context(), "one", make([]byte, 1), 0),
	} {
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %s: %v", what, op, err)
		}
	}
}

// testDenied: every operation reports a refusal, which may pass.
func testDenied(t *testing.T, s Service) {
	g, b, _ := s.Guarded(t)
	g.Set(func(w http.ResponseWriter, _ *http.Request) bool {
		s.Fail(w, http.StatusForbidden, s.Denied)
		return true
	})
	_, stat := b.Stat(t.Context(), "one")
	_, readAll := b.ReadAll(t.Context(), "one", 10)
	for what, err := range map[string]error{
		"stat": stat, "read all": readAll, "read": b.ReadAt(t.Context(), "one", make([]byte, 1), 0),
		"create":         b.Create(t.Context(), "one", strings.NewReader("x"), 1),
		"create a large": CreateStream(t.Context(), b, "one", make([]byte, PartSize+1)),
		"replace":        b.Replace(t.Context(), "one", []byte("x")),
		"delete":         b.Delete(t.Context(), "one"),
		"list":           b.List(t.Context(), "", nil),
	} {
		if !errors.Is(err, storage.ErrDenied) || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Answered is an answer of a service, and the kind of error that it stands for.
type Answered = struct {
	Status int
	Code   string
	Kind   error
}

// WantKinds checks that every operation reports what the service answers as the kind that it is.
func (s Service) WantKinds(t *testing.T, all []Answered) {
	t.Helper()
	g, b, _ := s.Guarded(t)
	for _, test := range all {
		g.Set(func(w http.ResponseWriter, _ *http.Request) bool {
			s.Fail(w, test.Status, test.Code)
			return true
		})
		err := b.ReadAt(t.Context(), "one", make([]byte, 1), 0)
		_, readAll := b.ReadAll(t.Context(), "one", 1)
		for what, err := range map[string]error{
			"read": err, "read all": readAll, "replace": b.Replace(t.Context(), "one", nil),
			"create": b.Create(t.Context(), "one", strings.NewReader("x"), 1),
			"list":   b.List(t.Context(), "", nil),
		} {
			if !errors.Is(err, test.Kind) {
				t.Errorf("%s, status %d, %s: %v", what, test.Status, test.Code, err)
			}
		}
	}
}

// Promises is a backend that can tell whether its service overwrites objects.
type Promises interface {
	storage.Backend
	CheckCreateOnly(ctx context.Context, name string) error
}

// WantLies checks that a service is known to ignore the condition in the requests that lies names, and in no others of
// all, and that nothing changes there.
func WantLies(t *testing.T, what string, b Promises, all, lies []string) {
	t.Helper()
	create(t, b, "object", []byte("what was there"))
	err := b.CheckCreateOnly(t.Context(), "object")
	if errors.Is(err, bucket.ErrOverwrites) != (lies != nil) || lies == nil && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, lie := range all {
		if err != nil && strings.Contains(err.Error(), lie) != slices.Contains(lies, lie) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantContent(t, b, "object", []byte("what was there"))
}

// WantNode checks that snapshots are written and read with the rights of a node, and that nothing is deleted.
func WantNode(t *testing.T, b Promises) {
	t.Helper()
	s := OpenStore(t, b)
	image := SmallImage(1)
	m := Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, image)
	WantImage(t, m, image, s)
	if err := CreateStream(t.Context(), b, "large", Bytes(1, PartSize+1)); err != nil {
		t.Error(err)
	}
	if err := b.CheckCreateOnly(t.Context(), storage.Marker); err != nil {
		t.Error(err)
	}
	if err := b.Replace(t.Context(), "note", []byte("first")); err != nil {
		t.Errorf("an object that is not there: %v", err)
	}
	wantKind(t, "delete", b.Delete(t.Context(), "note"), storage.ErrDenied)
}

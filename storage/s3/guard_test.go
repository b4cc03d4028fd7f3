package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// guard stands before a server. It may answer in its place, and notes what was asked.
type guard struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered; nil: it never does
	seen   []string
}

func newGuard(t *testing.T, server string) *guard {
	t.Helper()
	g := guardOf(t, server)
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

// guardOf returns a guard that listens nowhere yet.
func guardOf(t *testing.T, server string) *guard {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return &guard{proxy: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which is signed
	}}}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.seen = append(g.seen, kind(r))
	answer := g.answer
	g.mu.Unlock()
	if answer == nil || !answer(w, r) {
		g.proxy.ServeHTTP(w, r)
	}
}

// set has the guard answer by itself from now on, and forget what it has seen.
func (g *guard) set(answer func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer, g.seen = answer, nil
}

// asked returns what was asked since set.
func (g *guard) asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

// Kinds of requests.
const (
	get      = "get"
	head     = "head"
	list     = "list"
	put      = "put"
	begin    = "begin"
	part     = "part"
	complete = "complete"
	abort    = "abort"
	remove   = "remove"
)

func kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodHead:
		return head
	case q.Has("list-type"):
		return list
	case r.Method == http.MethodGet:
		return get
	case q.Has("uploads"):
		return begin
	case q.Has("partNumber"):
		return part
	case q.Has("uploadId") && r.Method == http.MethodPost:
		return complete
	case q.Has("uploadId"):
		return abort
	case r.Method == http.MethodPut:
		return put
	}
	return remove
}

// fail answers as the service does.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

// failing returns an answer to the first n requests of a kind.
func failing(what string, n, status int, code string) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if kind(r) != what || n == 0 {
			return false
		}
		n--
		fail(w, status, code)
		return true
	}
}

// lost returns an answer by which the server does the first request of a kind, and the client never learns it.
func (g *guard) lost(what string) func(http.ResponseWriter, *http.Request) bool {
	var once sync.Once
	return func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if kind(r) == what {
			once.Do(func() {
				g.proxy.ServeHTTP(httptest.NewRecorder(), r)
				fail(w, http.StatusServiceUnavailable, "SlowDown")
				answered = true
			})
		}
		return answered
	}
}

// ofNode answers as a bucket does whose policy gives nodes the rights in docs/install/stores.md.
func ofNode(w http.ResponseWriter, r *http.Request) bool {
	creates := kind(r) == put || kind(r) == complete
	if kind(r) == remove || creates && !strings.Contains(r.Header.Get("If-None-Match"), "*") {
		fail(w, http.StatusForbidden, "AccessDenied")
		return true
	}
	return false
}

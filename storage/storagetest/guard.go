package storagetest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// Kinds of requests to a service for objects.
const (
	Get      = "get"
	Head     = "head"
	List     = "list"
	Put      = "put"
	Begin    = "begin"
	Part     = "part"
	Complete = "complete"
	Abort    = "abort"
	Remove   = "remove"
	Other    = "other"
)

// Answer may answer a request in the server's place. It reports whether it has.
type Answer func(w http.ResponseWriter, r *http.Request) bool

// Guard stands before a server. It may answer in its place, and notes what was asked.
type Guard struct {
	*httptest.Server
	proxy *httputil.ReverseProxy
	kind  func(r *http.Request) string

	mu     sync.Mutex
	answer Answer // nil: it never does
	seen   []string
}

// NewGuard returns a guard before the server at that URL. kind returns the kind of a request.
func NewGuard(t *testing.T, server string, kind func(r *http.Request) string) *Guard {
	t.Helper()
	return newGuard(t, server, kind, httptest.NewServer)
}

// NewTLSGuard is NewGuard for a guard that is asked over TLS.
func NewTLSGuard(t *testing.T, server string, kind func(r *http.Request) string) *Guard {
	t.Helper()
	return newGuard(t, server, kind, httptest.NewTLSServer)
}

func newGuard(t *testing.T, server string, kind func(r *http.Request) string,
	start func(http.Handler) *httptest.Server,
) *Guard {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{kind: kind, proxy: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which is signed
	}}}
	g.Server = start(g)
	t.Cleanup(g.Close)
	return g
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.seen = append(g.seen, g.kind(r))
	answer := g.answer
	g.mu.Unlock()
	if answer == nil || !answer(w, r) {
		g.proxy.ServeHTTP(w, r)
	}
}

// Set has the guard answer by itself from now on, and forget what it has seen.
func (g *Guard) Set(answer Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer, g.seen = answer, nil
}

// Asked returns what was asked since Set.
func (g *Guard) Asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

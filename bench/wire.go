package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// wirePart is how much of an answer is passed on at a time.
	wirePart = 64 << 10
	// wireBehind is how far the wire may fall behind and catch up, in bytes. Without it the wire is slower than it says
	// whenever the processors are busy: 20 MiB took 280 ms, not 230.
	wireBehind = 4 * wirePart
)

// wire is a proxy to a server. It is as slow as a network: package storage/limit does the same within one process.
type wire struct {
	server *httptest.Server
	passed atomic.Int64 // bytes of all answers
}

// newWire makes a proxy to the server at an address. It passes on so many bytes a second, all answers together, and
// each request after a latency.
func newWire(address string, bytesPerSecond int64, latency time.Duration) *wire {
	w := &wire{}
	limit := rate.NewLimiter(rate.Limit(bytesPerSecond), wireBehind)
	w.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: address}) },
		Transport: late{latency, &http.Transport{MaxIdleConnsPerHost: wireConns}},
		ModifyResponse: func(r *http.Response) error {
			r.Body = &wireBody{r.Body, r.Request.Context(), w, limit}
			return nil
		},
	})
	return w
}

// address returns where the proxy listens: host and port.
func (w *wire) address() string { return strings.TrimPrefix(w.server.URL, "http://") }

func (w *wire) close() { w.server.Close() }

// wireConns bounds the connections to the server that are kept for more requests.
const wireConns = 64

// late is a transport that waits before each request.
type late struct {
	latency time.Duration
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := sleep(r.Context(), l.latency); err != nil {
		return nil, err
	}
	return l.next.RoundTrip(r)
}

// wireBody is the body of an answer that comes over a wire.
type wireBody struct {
	io.ReadCloser
	ctx   context.Context
	wire  *wire
	limit *rate.Limiter
}

func (b *wireBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), wirePart)])
	b.wire.passed.Add(int64(n))
	if waitErr := b.limit.WaitN(b.ctx, n); waitErr != nil {
		return n, waitErr
	}
	return n, err // io.EOF as it is
}

package bucket

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

const (
	// requestTime bounds a request with all its retries, without the time for its bytes.
	requestTime = 2 * time.Minute
	// slowest is the rate, in bytes a second, below which a request fails.
	slowest = 256 << 10
	// maxAnswer bounds an answer that is not an object's content. A list of MaxPage objects is the largest.
	maxAnswer = 8 << 20
)

// MaxPage is how many objects one answer lists.
const MaxPage = 1000

var errSlow = errors.New("the store has not answered in time")

// Bounded returns a context for a request that sends or gets n bytes.
func Bounded(ctx context.Context, n int64) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTime+time.Duration(n/slowest)*time.Second, errSlow)
}

// NewTransport returns a transport with short waits. Nil settings mean the usual authorities.
func NewTransport(t *tls.Config) *http.Transport {
	if t = t.Clone(); t == nil {
		t = &tls.Config{}
	}
	t.MinVersion = tls.VersionTLS12
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       t,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		ExpectContinueTimeout: 10 * time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   64,
		DisableCompression:    true,
	}
}

// proxy returns the proxy for a request.
func proxy(r *http.Request) (*url.URL, error) {
	if ofNode(r.URL.Hostname()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// ofNode reports whether a host is an address at which a node offers something to its programs, such as their identity.
func ofNode(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLinkLocalUnicast() || ip.Is6() && ip.IsPrivate())
}

// contentKey marks the context of a request for an object's content, of which the caller reads only what it wants.
type contentKey struct{}

// ForContent returns a context for a request for an object's content.
func ForContent(ctx context.Context) context.Context {
	return context.WithValue(ctx, contentKey{}, true)
}

// LimitAnswer limits the size of an answer that is no object's content.
func LimitAnswer(r *http.Request, resp *http.Response) {
	if r.Context().Value(contentKey{}) != nil && resp.StatusCode < http.StatusMultipleChoices {
		return
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
}

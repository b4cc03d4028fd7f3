package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	// requestTime bounds a request with all its retries, without the time for its bytes.
	requestTime = 2 * time.Minute
	// slowest is the rate, in bytes a second, below which a request fails.
	slowest = 256 << 10
	// maxAnswer bounds an answer that is not an object's content. A list of maxPage objects is the largest.
	maxAnswer = 8 << 20
	maxPage   = 1000
)

var errSlow = errors.New("the store has not answered in time")

// bounded returns a context for a request that sends or gets n bytes.
func bounded(ctx context.Context, n int64) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTime+time.Duration(n/slowest)*time.Second, errSlow)
}

// transport limits the size of answers.
type transport struct{ base *http.Transport }

// newTransport returns a transport like the library's own, with shorter waits.
func newTransport(t *tls.Config) *transport {
	if t = t.Clone(); t == nil {
		t = &tls.Config{}
	}
	t.MinVersion = tls.VersionTLS12
	return &transport{&http.Transport{
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
	}}
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

// RoundTrip implements http.RoundTripper. The library takes any 404 as an answer about an object, whoever gives it.
// RoundTrip believes it only in the form in which the service gives it.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	is := resp.Header.Get("Content-Type")
	if resp.StatusCode == http.StatusNotFound && r.Method != http.MethodHead && !strings.Contains(is, "xml") {
		return nil, errors.Join(fmt.Errorf("%s does not speak S3: it answers %s with %.40q", r.URL.Host, resp.Status, is),
			resp.Body.Close())
	}
	if r.Context().Value(contentKey{}) != nil && resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

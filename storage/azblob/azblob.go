package azblob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// Backend is a storage.Backend over a container.
type Backend struct {
	bucket.Reader
	client *client
	place  Place
	http   *transport
}

var _ storage.Backend = (*Backend)(nil)

// Options say how a container is reached.
type Options struct {
	Credentials *Credentials // nil: this process's own
	TLS         *tls.Config  // nil: the usual authorities
}

// Open connects to a container, which must exist. It uses the objects below the place's prefix.
func Open(ctx context.Context, p Place, o Options) (*Backend, error) {
	return open(ctx, p, o.Credentials, &transport{bucket.NewTransport(o.TLS)})
}

func open(ctx context.Context, p Place, c *Credentials, t *transport) (*Backend, error) {
	b := &Backend{place: p, http: t}
	b.Reader = bucket.NewReader(b.Stat, b.get, classify)
	var err error
	if c == nil {
		c, err = ofProcess(p)
	}
	if err == nil {
		b.client = &client{place: p, credentials: c, options: clientOptions(t)}
		err = b.probe(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", p, classify(ctx, err)), b.Close())
	}
	return b, nil
}

// clientOptions bound the retries of a request. bucket.Bounded bounds their time.
func clientOptions(t *transport) azcore.ClientOptions {
	return azcore.ClientOptions{
		Transport: t,
		Telemetry: policy.TelemetryOptions{ApplicationID: "diapause"},
		Retry:     policy.RetryOptions{MaxRetries: 5, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 10 * time.Second},
	}
}

// probe checks whether the container exists, can be listed, and lists only objects.
func (b *Backend) probe(ctx context.Context) error {
	if _, _, err := b.page(ctx, "", "", 1); err != nil {
		return err
	}
	c, err := b.client.container()
	if err != nil {
		return err
	}
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	info, err := c.GetAccountInfo(limited, nil)
	if err == nil && info.IsHierarchicalNamespaceEnabled != nil && *info.IsHierarchicalNamespaceEnabled {
		return fmt.Errorf("account %s has a hierarchical namespace, where directories are among the objects: "+
			"use an account without", b.place.Account)
	}
	return ctx.Err() // without the right to ask, nothing is known
}

// Location returns the place as a location.
func (b *Backend) Location() string { return b.place.String() }

// Close closes the connections that wait for requests.
func (b *Backend) Close() error {
	b.http.base.CloseIdleConnections()
	return nil
}

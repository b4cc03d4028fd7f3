package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// Backend is a storage.Backend over a bucket.
type Backend struct {
	bucket.Reader
	core  *minio.Core
	place Place
	http  *transport
}

var _ storage.Backend = (*Backend)(nil)

// Options say how a bucket is reached.
type Options struct {
	Credentials *Credentials // nil: this process's own
	TLS         *tls.Config  // nil: the usual authorities
}

// Open connects to a bucket, which must exist. It uses the objects below the place's prefix.
func Open(ctx context.Context, p Place, o Options) (*Backend, error) {
	b, err := connect(p, o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p, err)
	}
	if err := b.probe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", p, err), b.Close())
	}
	return b, nil
}

func connect(p Place, o Options) (*Backend, error) {
	region, err := p.region()
	if err != nil {
		return nil, err
	}
	b := &Backend{place: p, http: &transport{bucket.NewTransport(o.TLS)}}
	b.Reader = bucket.NewReader(b.Stat, b.get, classify)
	if o.Credentials == nil {
		o.Credentials = ofProcess(region, b.http)
	}
	host, secure := p.host()
	b.core, err = minio.NewCore(host, &minio.Options{
		Creds: o.Credentials, Secure: secure, Transport: b.http, Region: region, BucketLookup: p.lookup(),
	})
	return b, err
}

// probe checks whether the bucket exists and can be listed.
func (b *Backend) probe(ctx context.Context) error {
	_, _, err := b.page(ctx, "", "", 1)
	return err
}

// Location returns the place as a location.
func (b *Backend) Location() string { return b.place.String() }

// Close closes the connections that wait for requests.
func (b *Backend) Close() error {
	b.http.base.CloseIdleConnections()
	return nil
}

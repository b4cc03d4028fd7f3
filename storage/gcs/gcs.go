package gcs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"diapause.dev/storage"
)

const (
	// retryFor bounds the retries of one request.
	retryFor = 2 * time.Minute
	// oneRequest is the size up to which an object is sent in one request, from one buffer.
	oneRequest = 64 << 20
	pieceSize  = 16 << 20 // of larger objects
	granule    = 256 << 10
	// writerKey is the metadata by which a creator recognises its own object.
	writerKey = "diapause-writer"
)

// Backend is a storage.Backend over a bucket.
type Backend struct {
	client *gcs.Client
	bucket *gcs.BucketHandle
	name   string // of the bucket
	prefix string // "" or ending in '/'
}

var _ storage.Backend = (*Backend)(nil)

// Open connects to a bucket, which must exist. It uses the objects below the prefix, or the whole bucket if prefix is
// "". The '/' at the end of the prefix may be omitted. Options go to the client.
func Open(ctx context.Context, bucket, prefix string, options ...option.ClientOption) (*Backend, error) {
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		if err := storage.ValidateObject(prefix); err != nil {
			return nil, fmt.Errorf("open gs://%s: prefix: %w", bucket, err)
		}
		prefix += "/"
	}
	client, err := gcs.NewClient(ctx, append([]option.ClientOption{gcs.WithJSONReads()}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", bucket, err)
	}
	client.SetRetry(gcs.WithMaxRetryDuration(retryFor),
		gcs.WithBackoff(gax.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Multiplier: 2}))
	b := &Backend{client: client, bucket: client.Bucket(bucket), name: bucket, prefix: prefix}
	if err := b.probe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", b.Location(), classify(err)), client.Close())
	}
	return b, nil
}

// probe checks whether the bucket exists and can be read.
func (b *Backend) probe(ctx context.Context) error {
	_, err := b.objects(ctx, "").Next()
	if errors.Is(err, iterator.Done) {
		return nil
	}
	return err
}

// Location returns "gs://bucket/prefix".
func (b *Backend) Location() string {
	return strings.TrimSuffix("gs://"+b.name+"/"+b.prefix, "/")
}

// Close closes the client.
func (b *Backend) Close() error { return b.client.Close() }

func (b *Backend) object(name string) *gcs.ObjectHandle { return b.bucket.Object(b.prefix + name) }

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	token := rand.Text()
	o := b.object(name).If(gcs.Conditions{DoesNotExist: true})
	err := upload(ctx, o, r, size, map[string]string{writerKey: token})
	if err = classify(err); errors.Is(err, storage.ErrExists) && b.wrote(ctx, name, token) {
		return nil // an attempt whose answer was lost has created it
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

// wrote reports whether the object was created with this token.
func (b *Backend) wrote(ctx context.Context, name, token string) bool {
	attrs, err := b.object(name).Attrs(ctx)
	return err == nil && attrs.Metadata[writerKey] == token
}

// Replace implements storage.Backend.
func (b *Backend) Replace(ctx context.Context, name string, data []byte) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	// Without a condition the client assumes that a write cannot be repeated; this one can.
	o := b.object(name).Retryer(gcs.WithPolicy(gcs.RetryAlways))
	if err := upload(ctx, o, strings.NewReader(string(data)), int64(len(data)), nil); err != nil {
		return fmt.Errorf("replace %s: %w", name, classify(err))
	}
	return nil
}

// upload writes the size bytes of r, or all of them if size is -1. Only Close makes the object. After any failure
// before that, upload cancels the writer's context, so that Close makes nothing.
func upload(ctx context.Context, o *gcs.ObjectHandle, r io.Reader, size int64, metadata map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := o.NewWriter(ctx)
	w.ChunkSize = pieceSize
	if size >= 0 && size < oneRequest {
		w.ChunkSize = int(size/granule+1) * granule
	}
	w.ContentType = "application/octet-stream"
	w.Metadata = metadata
	if size >= 0 {
		r = io.LimitReader(r, size+1)
	}
	n, err := io.Copy(w, r)
	if err == nil && size >= 0 && n != size {
		err = fmt.Errorf("the reader does not hold the %d bytes announced", size)
	}
	if err != nil {
		cancel()
		_ = w.Close() // says only that it was cancelled
		return err
	}
	return w.Close()
}

// ReadAt implements storage.Backend.
func (b *Backend) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("read %s: negative offset %d", name, off)
	}
	if len(p) == 0 {
		_, err := b.Stat(ctx, name)
		return err
	}
	r, err := b.object(name).NewRangeReader(ctx, off, int64(len(p)))
	if err == nil {
		_, err = io.ReadFull(r, p)
		_ = r.Close() // nothing was written
	}
	if err != nil {
		return fmt.Errorf("read %s: bytes %d+%d: %w", name, off, len(p), classify(err))
	}
	return nil
}

// ReadAll implements storage.Backend.
func (b *Backend) ReadAll(ctx context.Context, name string, max int64) ([]byte, error) {
	if err := storage.ValidateObject(name); err != nil {
		return nil, err
	}
	r, err := b.object(name).NewReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, classify(err))
	}
	defer r.Close() // nothing was written
	if r.Attrs.Size > max {
		return nil, fmt.Errorf("read %s: %w: %d bytes, at most %d expected", name, storage.ErrTooLarge, r.Attrs.Size, max)
	}
	data := make([]byte, r.Attrs.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, classify(err))
	}
	return data, nil
}

// Stat implements storage.Backend.
func (b *Backend) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if err := storage.ValidateObject(name); err != nil {
		return storage.ObjectInfo{}, err
	}
	attrs, err := b.object(name).Attrs(ctx)
	if err != nil {
		return storage.ObjectInfo{}, fmt.Errorf("stat %s: %w", name, classify(err))
	}
	return b.info(attrs), nil
}

func (b *Backend) info(a *gcs.ObjectAttrs) storage.ObjectInfo {
	return storage.ObjectInfo{Name: strings.TrimPrefix(a.Name, b.prefix), Size: a.Size, Modified: a.Created}
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if err := storage.ValidateObject(prefix[:i]); err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
	}
	for it := b.objects(ctx, prefix); ; {
		attrs, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", prefix, classify(err))
		}
		info := b.info(attrs)
		if storage.ValidateObject(info.Name) != nil {
			continue // not an object of the store
		}
		if err := fn(info); err != nil {
			return err
		}
	}
}

func (b *Backend) objects(ctx context.Context, prefix string) *gcs.ObjectIterator {
	q := &gcs.Query{Prefix: b.prefix + prefix}
	_ = q.SetAttrSelection([]string{"Name", "Size", "Created"}) // these are known
	return b.bucket.Objects(ctx, q)
}

// Delete implements storage.Backend. It deletes only the generation that it found, so that a repeated request cannot
// hit a later object. If there is a later one, the error is ErrExists.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	attrs, err := b.object(name).Attrs(ctx)
	if err == nil {
		err = b.object(name).If(gcs.Conditions{GenerationMatch: attrs.Generation}).Delete(ctx)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, classify(err))
	}
	return nil
}

package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
)

const (
	// oneRequest is the size up to which an object is sent in one request, from one buffer, if its size is known.
	oneRequest = 64 << 20
	// partSize is the size of the parts of other objects. The service allows maxParts of them.
	partSize = 16 << 20
	maxParts = 10_000
	// writerKey is the metadata by which a creator recognises its own object.
	writerKey = "Diapause-Writer"
	// conflicts is how often a put is tried that meets another request, each time after a longer pause. Amazon reports a
	// conflict of two puts of one name; servers over a directory also one of a put and a deletion in the same directory.
	conflicts     = 8
	conflictPause = 50 * time.Millisecond
	// abortTime bounds how long a failed upload takes to be aborted. What remains is for the bucket's lifecycle rule.
	abortTime = 5 * time.Second
)

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	if err := b.create(ctx, name, r, size); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

func (b *Backend) create(ctx context.Context, name string, r io.Reader, size int64) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	u := b.newUpload(ctx, name, size)
	if size >= 0 {
		r = io.LimitReader(r, size+1)
	}
	n, err := io.Copy(u, r)
	if err == nil && size >= 0 && n != size {
		err = fmt.Errorf("the reader does not hold the %d bytes announced", size)
	}
	if err == nil {
		err = u.finish()
	}
	if err != nil {
		u.abort()
	}
	return err
}

// Replace implements storage.Backend. If the right to overwrite is missing, it still creates an object that is not
// there.
func (b *Backend) Replace(ctx context.Context, name string, data []byte) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	err := b.put(ctx, name, data, minio.PutObjectOptions{})
	if errors.Is(err, storage.ErrDenied) {
		if b.put(ctx, name, data, createOnly(rand.Text())) == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// createOnly returns options for an object that must not exist yet.
func createOnly(token string) minio.PutObjectOptions {
	o := minio.PutObjectOptions{UserMetadata: map[string]string{writerKey: token}}
	o.SetMatchETagExcept("*")
	return o
}

// put sends an object in one request, and again while the service reports a conflict with another request.
func (b *Backend) put(ctx context.Context, name string, data []byte, o minio.PutObjectOptions) error {
	for i := 1; ; i++ {
		err := b.putOnce(ctx, name, data, o)
		if !conflict(err) || i == conflicts {
			return classify(ctx, err)
		}
		select {
		case <-time.After(time.Duration(i) * conflictPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Backend) putOnce(ctx context.Context, name string, data []byte, o minio.PutObjectOptions) error {
	ctx, cancel := bounded(ctx, int64(len(data)))
	defer cancel()
	o.DisableContentSha256 = true // the library shall not compute its own
	_, err := b.core.PutObject(ctx, b.place.Bucket, b.key(name), bytes.NewReader(data), int64(len(data)), "", sum(data), o)
	return err
}

// sum returns the SHA-256 of a request's body, which the service compares.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// wrote reports whether the object has this token.
func (b *Backend) wrote(ctx context.Context, name, token string) (bool, error) {
	info, err := b.head(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && info.Metadata.Get("X-Amz-Meta-"+writerKey) == token, err
}

// upload makes an object of what is written to it. Only finish makes the object.
type upload struct {
	b     *Backend
	ctx   context.Context
	name  string
	token string
	part  int    // size of all parts but the last
	buf   []byte // what no request has sent yet, at most a part
	id    string // of the upload in parts; empty: nothing was sent yet
	sent  []minio.CompletePart
}

// newUpload returns an upload for an object of that size, or of any if it is -1.
func (b *Backend) newUpload(ctx context.Context, name string, size int64) *upload {
	u := &upload{b: b, ctx: ctx, name: name, token: rand.Text(), part: partSize}
	if size >= 0 && size <= oneRequest {
		u.part = int(size) + 1 // a reader may hold one byte too many
	}
	u.buf = make([]byte, 0, u.part)
	return u
}

// Write implements io.Writer. It sends a part once it is full and more follows.
func (u *upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(u.buf) == u.part {
			if err := u.send(); err != nil {
				return n, err
			}
		}
		k := min(len(p), u.part-len(u.buf))
		u.buf = append(u.buf, p[:k]...)
		n, p = n+k, p[k:]
	}
	return n, nil
}

// send sends the buffer as the next part.
func (u *upload) send() error {
	if len(u.sent) == maxParts {
		return fmt.Errorf("%w: more than %d parts of %d bytes", storage.ErrTooLarge, maxParts, u.part)
	}
	ctx, cancel := bounded(u.ctx, int64(len(u.buf)))
	defer cancel()
	if u.id == "" {
		o := minio.PutObjectOptions{UserMetadata: map[string]string{writerKey: u.token}}
		id, err := u.b.core.NewMultipartUpload(ctx, u.b.place.Bucket, u.b.key(u.name), o)
		if err != nil {
			return classify(u.ctx, err)
		}
		u.id = id
	}
	part, err := u.b.core.PutObjectPart(ctx, u.b.place.Bucket, u.b.key(u.name), u.id, len(u.sent)+1,
		bytes.NewReader(u.buf), int64(len(u.buf)), minio.PutObjectPartOptions{
			Sha256Hex: sum(u.buf), DisableContentSha256: true,
		})
	if err != nil {
		return classify(u.ctx, err)
	}
	u.sent = append(u.sent, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	u.buf = u.buf[:0]
	return nil
}

// finish makes the object.
func (u *upload) finish() error {
	var err error
	if u.id == "" {
		err = u.b.put(u.ctx, u.name, u.buf, createOnly(u.token))
	} else if err = u.send(); err == nil {
		err = u.complete()
	}
	if !errors.Is(err, storage.ErrExists) && !hasCode(err, codeNoUpload) {
		return err
	}
	own, lookErr := u.b.wrote(u.ctx, u.name, u.token)
	switch {
	case own:
		return nil // an attempt whose answer was lost has created it
	case lookErr != nil:
		return fmt.Errorf("whose object is it? %w", lookErr)
	}
	return err
}

// complete makes the object of its parts. A conflict with another request is an error: it ends the upload, and the
// parts would have to be sent again.
func (u *upload) complete() error {
	ctx, cancel := bounded(u.ctx, 0)
	defer cancel()
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err := u.b.core.CompleteMultipartUpload(ctx, u.b.place.Bucket, u.b.key(u.name), u.id, u.sent, o)
	return classify(u.ctx, err)
}

// abort removes the parts that were sent, even if the context has ended.
func (u *upload) abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	_ = u.b.core.AbortMultipartUpload(ctx, u.b.place.Bucket, u.b.key(u.name), u.id) // the lifecycle rule does it, too
}

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
	"diapause.dev/storage/bucket"
)

const (
	// writerKey is the metadata by which a creator recognizes its own object.
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
	return bucket.Create(ctx, b.newUpload(ctx, name), name, r, size)
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
	ctx, cancel := bucket.Bounded(ctx, int64(len(data)))
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
	return err == nil && info.Metadata.Get("X-Amz-Meta-"+writerKey) == token, err
}

// upload is a bucket.Upload.
type upload struct {
	b     *Backend
	ctx   context.Context
	name  string
	token string
	id    string // of the upload in parts; empty: nothing was sent yet
	sent  []minio.CompletePart
}

func (b *Backend) newUpload(ctx context.Context, name string) *upload {
	return &upload{b: b, ctx: ctx, name: name, token: rand.Text()}
}

// Send implements bucket.Upload.
func (u *upload) Send(data []byte) error {
	ctx, cancel := bucket.Bounded(u.ctx, int64(len(data)))
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
		bytes.NewReader(data), int64(len(data)), minio.PutObjectPartOptions{
			Sha256Hex: sum(data), DisableContentSha256: true,
		})
	if err != nil {
		return classify(u.ctx, err)
	}
	u.sent = append(u.sent, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	return nil
}

// Finish implements bucket.Upload.
func (u *upload) Finish(data []byte) error {
	var err error
	if u.id == "" {
		err = u.b.put(u.ctx, u.name, data, createOnly(u.token))
	} else if err = u.Send(data); err == nil {
		err = u.complete()
	}
	if !errors.Is(err, storage.ErrExists) && !hasCode(err, codeNoUpload) {
		return err
	}
	own, lookErr := u.b.wrote(u.ctx, u.name, u.token)
	return bucket.Settle(err, own, lookErr)
}

// complete makes the object of its parts. A conflict with another request is an error: it ends the upload, and the
// parts would have to be sent again.
func (u *upload) complete() error {
	ctx, cancel := bucket.Bounded(u.ctx, 0)
	defer cancel()
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err := u.b.core.CompleteMultipartUpload(ctx, u.b.place.Bucket, u.b.key(u.name), u.id, u.sent, o)
	return classify(u.ctx, err)
}

// Abort implements bucket.Upload.
func (u *upload) Abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	_ = u.b.core.AbortMultipartUpload(ctx, u.b.place.Bucket, u.b.key(u.name), u.id) // the lifecycle rule does it, too
}

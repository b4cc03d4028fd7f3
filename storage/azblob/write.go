package azblob

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// writerKey is the metadata by which a creator recognizes its own object.
const writerKey = "Diapausewriter"

// polynomial is that of the CRC-64 by which the service compares what it gets.
const polynomial = 0x9A6C9329AC4BC9B5

var table = crc64.MakeTable(polynomial)

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
	err := b.put(ctx, name, data, &blockblob.UploadOptions{})
	if errors.Is(err, storage.ErrDenied) && b.put(ctx, name, data, createOnly(rand.Text())) == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// notThere is the condition that an object does not exist.
func notThere() *blob.AccessConditions {
	any := azcore.ETagAny
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &any}}
}

func writtenBy(token string) map[string]*string { return map[string]*string{writerKey: &token} }

// createOnly returns options for an object that must not exist yet.
func createOnly(token string) *blockblob.UploadOptions {
	return &blockblob.UploadOptions{Metadata: writtenBy(token), AccessConditions: notThere()}
}

// put sends an object in one request.
func (b *Backend) put(ctx context.Context, name string, data []byte, o *blockblob.UploadOptions) error {
	limited, cancel := bucket.Bounded(ctx, int64(len(data)))
	defer cancel()
	object, err := b.blob(name)
	if err == nil {
		o.TransactionalValidation = sum(data)
		_, err = object.Upload(limited, streaming.NopCloser(bytes.NewReader(data)), o)
	}
	return classify(ctx, err)
}

// sum returns the digest of a request's body, which the service compares.
func sum(data []byte) blob.TransferValidationTypeCRC64 {
	return blob.TransferValidationTypeCRC64(crc64.Checksum(data, table))
}

// upload is a bucket.Upload.
type upload struct {
	b     *Backend
	ctx   context.Context
	name  string
	token string
	sent  []string // the identifiers of the blocks
}

func (b *Backend) newUpload(ctx context.Context, name string) *upload {
	return &upload{b: b, ctx: ctx, name: name, token: rand.Text()}
}

// Send implements bucket.Upload. The service wants identifiers of equal length.
func (u *upload) Send(data []byte) error {
	limited, cancel := bucket.Bounded(u.ctx, int64(len(data)))
	defer cancel()
	id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", u.token, len(u.sent)))
	object, err := u.b.blob(u.name)
	if err == nil {
		_, err = object.StageBlock(limited, id, streaming.NopCloser(bytes.NewReader(data)), &blockblob.StageBlockOptions{
			TransactionalValidation: sum(data),
		})
	}
	if err != nil {
		return classify(u.ctx, err)
	}
	u.sent = append(u.sent, id)
	return nil
}

// Finish implements bucket.Upload.
func (u *upload) Finish(data []byte) error {
	var err error
	if len(u.sent) == 0 {
		err = u.b.put(u.ctx, u.name, data, createOnly(u.token))
	} else if err = u.Send(data); err == nil {
		err = u.complete()
	}
	lost := hasCode(err, bloberror.InvalidBlockList)
	if !errors.Is(err, storage.ErrExists) && !lost {
		return err
	}
	own, lookErr := u.b.wrote(u.ctx, u.name, u.token)
	if lost && lookErr == nil { // who made the object has removed the blocks of others
		err = fmt.Errorf("%w: %w", storage.ErrExists, err)
	}
	return bucket.Settle(err, own, lookErr)
}

// complete makes the object of its blocks. Blocks of others for the same name are gone then.
func (u *upload) complete() error {
	limited, cancel := bucket.Bounded(u.ctx, 0)
	defer cancel()
	object, err := u.b.blob(u.name)
	if err == nil {
		_, err = object.CommitBlockList(limited, u.sent, &blockblob.CommitBlockListOptions{
			Metadata: writtenBy(u.token), AccessConditions: notThere(),
		})
	}
	return classify(u.ctx, err)
}

// Abort implements bucket.Upload. The service has no request that removes blocks. It removes them after a week.
func (u *upload) Abort() {}

// wrote reports whether the object has this token.
func (b *Backend) wrote(ctx context.Context, name, token string) (bool, error) {
	info, err := b.head(ctx, name)
	if err != nil {
		return false, err
	}
	for key, value := range info.Metadata {
		if strings.EqualFold(key, writerKey) && value != nil && *value == token {
			return true, nil
		}
	}
	return false, nil
}

// Delete implements storage.Backend.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	object, err := b.blob(name)
	if err == nil {
		all := blob.DeleteSnapshotsOptionTypeInclude
		_, err = object.Delete(limited, &blob.DeleteOptions{DeleteSnapshots: &all})
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, classify(ctx, err))
	}
	return nil
}

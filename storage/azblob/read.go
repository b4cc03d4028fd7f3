package azblob

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// get is for bucket.NewReader.
func (b *Backend) get(ctx context.Context, name string, off, n int64, use func(*bucket.Content) error) error {
	object, err := b.blob(name)
	if err != nil {
		return err
	}
	var o blob.DownloadStreamOptions
	if off >= 0 {
		o.Range = blob.HTTPRange{Offset: off, Count: n}
	}
	resp, err := object.DownloadStream(ctx, &o)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // nothing was written
	c := &bucket.Content{Body: resp.Body, Size: -1}
	if resp.ContentLength != nil {
		c.Size = *resp.ContentLength
	}
	if resp.ContentRange != nil {
		c.Range = *resp.ContentRange
	}
	return use(c)
}

// Stat implements storage.Backend.
func (b *Backend) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if err := storage.ValidateObject(name); err != nil {
		return storage.ObjectInfo{}, err
	}
	info, err := b.head(ctx, name)
	if err != nil {
		return storage.ObjectInfo{}, fmt.Errorf("stat %s: %w", name, err)
	}
	return objectInfo(name, info.ContentLength, info.LastModified), nil
}

// head returns what the service knows about an object. The answer has no text, but a header with the error's code.
func (b *Backend) head(ctx context.Context, name string) (blob.GetPropertiesResponse, error) {
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	object, err := b.blob(name)
	if err != nil {
		return blob.GetPropertiesResponse{}, classify(ctx, err)
	}
	info, err := object.GetProperties(limited, nil)
	if err == nil && (info.ContentLength == nil || info.LastModified == nil) {
		err = fmt.Errorf("%w: the store does not say how large an object is, or when it was made", storage.ErrUnavailable)
	}
	return info, classify(ctx, err)
}

func objectInfo(name string, size *int64, modified *time.Time) storage.ObjectInfo {
	return storage.ObjectInfo{Name: name, Size: *size, Modified: *modified}
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	return bucket.List(ctx, b.place.Prefix, prefix, fn,
		func(ctx context.Context, after string) ([]storage.ObjectInfo, string, error) {
			return b.page(ctx, prefix, after, bucket.MaxPage)
		})
}

// page returns the next objects after a marker of the service, at most n, and the marker after them, if there are more.
func (b *Backend) page(ctx context.Context, prefix, after string, n int32) (page []storage.ObjectInfo, next string,
	err error,
) {
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	c, err := b.client.container()
	if err != nil {
		return nil, "", classify(ctx, err)
	}
	below := b.place.Prefix + prefix
	o := container.ListBlobsFlatOptions{Prefix: &below, MaxResults: &n}
	if after != "" {
		o.Marker = &after
	}
	resp, err := c.NewListBlobsFlatPager(&o).NextPage(limited)
	if err != nil {
		return nil, "", classify(ctx, err)
	}
	if resp.NextMarker != nil {
		next = *resp.NextMarker
	}
	if resp.Segment == nil {
		return nil, "", fmt.Errorf("%w: the store's answer is no list", storage.ErrUnavailable)
	}
	for _, o := range resp.Segment.BlobItems {
		if o == nil || o.Name == nil || o.Properties == nil || o.Properties.ContentLength == nil ||
			o.Properties.LastModified == nil {
			return nil, "", fmt.Errorf("%w: the store lists something without a name, a size or a time", storage.ErrUnavailable)
		}
		page = append(page, objectInfo(*o.Name, o.Properties.ContentLength, o.Properties.LastModified))
	}
	return page, next, nil
}

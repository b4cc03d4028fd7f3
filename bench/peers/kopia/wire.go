package main

import (
	"context"

	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/blob/filesystem"
	"golang.org/x/time/rate"
)

// wireType is the name under which kopia finds the storage again.
const wireType = "wire"

// wireOptions say where the blobs are, and how many bytes per second may be written; 0 is any.
// kopia's own limit lets the first minute's worth pass at once.
type wireOptions struct {
	Path string  `json:"path"`
	Up   float64 `json:"up"`
}

// piece is how many bytes are let through at a time.
const piece = 256 << 10

// wire is a directory behind a slow wire.
type wire struct {
	blob.Storage
	options wireOptions
	limit   *rate.Limiter
}

func newWire(ctx context.Context, o *wireOptions, create bool) (blob.Storage, error) {
	st, err := filesystem.New(ctx, &filesystem.Options{Path: o.Path}, create)
	if err != nil {
		return nil, err
	}
	w := &wire{Storage: st, options: *o, limit: rate.NewLimiter(rate.Inf, piece)}
	if o.Up > 0 {
		w.limit.SetLimit(rate.Limit(o.Up))
	}
	return w, nil
}

// PutBlob implements blob.Storage.
func (w *wire) PutBlob(ctx context.Context, id blob.ID, data blob.Bytes, o blob.PutOptions) error {
	for left := data.Length(); left > 0; left -= piece {
		if err := w.limit.WaitN(ctx, min(left, piece)); err != nil {
			return err
		}
	}
	return w.Storage.PutBlob(ctx, id, data, o)
}

// ConnectionInfo implements blob.Storage.
func (w *wire) ConnectionInfo() blob.ConnectionInfo {
	return blob.ConnectionInfo{Type: wireType, Config: &w.options}
}

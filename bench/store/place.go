package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/limit"
)

// local is a backend that nothing slows.
var local = limit.Options{}

// place is an empty store in a directory of its own, perhaps behind a slow wire.
type place struct {
	*storage.Store
	calls *counter
	path  string
}

// newPlace makes a store; the caller closes it.
func (b *bench) newPlace(ctx context.Context, wire limit.Options, o storage.Options) (*place, error) {
	path, err := os.MkdirTemp(b.scratch, "store-")
	if err != nil {
		return nil, err
	}
	return openPlace(ctx, path, wire, o)
}

func openPlace(ctx context.Context, path string, wire limit.Options, o storage.Options) (*place, error) {
	d, err := dir.Open(path)
	if err != nil {
		return nil, err
	}
	var b storage.Backend = d
	if wire != local {
		b = limit.New(d, wire)
	}
	return newStore(ctx, b, path, o)
}

// newStore opens a store on a backend, which it closes if it fails. The path is removed with the place.
func newStore(ctx context.Context, b storage.Backend, path string, o storage.Options) (p *place, err error) {
	p = &place{calls: &counter{Backend: b}, path: path}
	if p.Store, err = storage.Open(ctx, p.calls, o); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return p, nil
}

// behind opens the same store behind another wire, with nothing counted yet. Only the first of them
// is to be removed.
func (p *place) behind(ctx context.Context, wire limit.Options, o storage.Options) (*place, error) {
	return openPlace(ctx, p.path, wire, o)
}

func (p *place) remove() error { return errors.Join(p.calls.Close(), os.RemoveAll(p.path)) }

// size sums up all objects.
func (p *place) size(ctx context.Context) (total int64, err error) {
	err = p.calls.Backend.List(ctx, "", func(o storage.ObjectInfo) error {
		total += o.Size
		return nil
	})
	return total, err
}

// save makes a snapshot of an image.
func (p *place) save(ctx context.Context, name string, parent *storage.Manifest, im *image) (*storage.Manifest, error) {
	w, err := p.NewWriter(ctx, storage.Key{Namespace: namespace, Name: name}, storage.WriterOptions{Parent: parent})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for file, raw := range im.chunks {
		if err := w.File(file).Chunk(raw); err != nil {
			return nil, err
		}
	}
	return w.Commit(ctx, snapshot.Meta{})
}

// counter counts what is asked of a backend.
type counter struct {
	storage.Backend
	requests atomic.Int64
	read     atomic.Int64 // bytes
}

func (c *counter) reset() {
	c.requests.Store(0)
	c.read.Store(0)
}

// Create implements storage.Backend.
func (c *counter) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	c.requests.Add(1)
	return c.Backend.Create(ctx, name, r, size)
}

// Replace implements storage.Backend.
func (c *counter) Replace(ctx context.Context, name string, data []byte) error {
	c.requests.Add(1)
	return c.Backend.Replace(ctx, name, data)
}

// ReadAt implements storage.Backend.
func (c *counter) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	c.requests.Add(1)
	c.read.Add(int64(len(p)))
	return c.Backend.ReadAt(ctx, name, p, off)
}

// ReadAll implements storage.Backend.
func (c *counter) ReadAll(ctx context.Context, name string, max int64) ([]byte, error) {
	c.requests.Add(1)
	data, err := c.Backend.ReadAll(ctx, name, max)
	c.read.Add(int64(len(data)))
	return data, err
}

// Stat implements storage.Backend.
func (c *counter) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	c.requests.Add(1)
	return c.Backend.Stat(ctx, name)
}

// List implements storage.Backend.
func (c *counter) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	c.requests.Add(1)
	return c.Backend.List(ctx, prefix, fn)
}

// Delete implements storage.Backend.
func (c *counter) Delete(ctx context.Context, name string) error {
	c.requests.Add(1)
	return c.Backend.Delete(ctx, name)
}

package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/storage"
	"diapause.dev/storage/cache"
)

// ways is how many restores of one snapshot run at a time.
const ways = 8

// sharedCache restores one snapshot eight times at once on a node with an empty cache: the store should
// be asked for each byte once.
func (b *bench) sharedCache(ctx context.Context) (err error) {
	const name = "cache/8way"
	p, err := b.newPlace(ctx, local, storage.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	m, err := p.save(ctx, "one", nil, b.base)
	if err != nil {
		return err
	}
	node, err := cache.Open(filepath.Join(b.scratch, "cache"), cache.Options{MaxBytes: 1 << 30})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	far, err := p.behind(ctx, wire100rtt20, storage.Options{Cache: node})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.calls.Close()) }()
	far.calls.reset()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range ways {
		group.Go(func() error {
			return readAll(ctx, storage.NewReader(m, far.Store), m, touched(len(b.base.raw)))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	b.bounded(name, "read_bytes", float64(far.calls.read.Load()), byteUnit, float64(packBytes(m)))
	b.add(name, seconds, took.Seconds(), second)
	b.add(name, throughput, ways*b.rate(b.base, took), mbPerSecond)
	b.add(name, requests, float64(far.calls.requests.Load()), count)
	return nil
}

// packBytes is the size of the packs that a snapshot names.
func packBytes(m *storage.Manifest) (total int64) {
	for _, p := range m.Packs {
		total += p.Size
	}
	return total
}

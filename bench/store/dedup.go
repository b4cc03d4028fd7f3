package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/storage"
)

// again writes an image whose parent is base, and returns what base took and what was added.
func (b *bench) again(ctx context.Context, base, next *image) (full, added int64, err error) {
	p, err := b.newPlace(ctx, local, storage.Options{Codec: storage.CodecZstd})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	parent, err := p.save(ctx, "base", nil, base)
	if err != nil {
		return 0, 0, err
	}
	if full, err = p.size(ctx); err != nil {
		return 0, 0, err
	}
	if _, err := p.save(ctx, "next", parent, next); err != nil {
		return 0, 0, err
	}
	both, err := p.size(ctx)
	return full, both - full, err
}

// dedup stores what is mostly stored already: the idle sandbox, the restored one, and one with 5 %
// of its pages rewritten, that one by size of chunks too. All in one codec: a mix of codecs that
// the machine's load decides would blur the sizes.
func (b *bench) dedup(ctx context.Context) error {
	for _, s := range []struct {
		name string
		next *image
	}{{"dedup/idle", b.idle}, {"dedup/dirty5", b.dirty}, {"dedup/restored", b.restored}} {
		full, added, err := b.again(ctx, b.base, s.next)
		if err != nil {
			return err
		}
		b.bounded(s.name, storedBytes, float64(added), byteUnit, float64(full))
	}
	b.add("dedup/dirty5", "rewritten_pages", b.dirty.changed(b.base), share)
	b.add("dedup/idle", "rewritten_pages", b.idle.changed(b.base), share)
	if err := b.recognised(ctx); err != nil {
		return err
	}
	return b.curve(ctx)
}

// recognised measures how fast snapshots of the idle sandbox are once there is one. The second of a
// lineage takes the fingerprint and the digest of each chunk, the third the fingerprint alone: that, on
// all cores, is its bound.
func (b *bench) recognised(ctx context.Context) error {
	var second, third, prints, sums best
	list := rawWork(b.idle)
	for range rounds {
		if err := b.lineage(ctx, &second, &third); err != nil {
			return err
		}
		prints.add(fingerprintAlone(list))
		sums.add(digestAlone(list))
	}
	const name = "dedup/idle"
	b.bounded(name, throughput, b.rate(b.idle, third.took), mbPerSecond, b.rate(b.idle, prints.took))
	b.add(name, throughput+"_second", b.rate(b.idle, second.took), mbPerSecond)
	b.add(name, throughput+"_digests_alone", b.rate(b.idle, sums.took), mbPerSecond)
	return nil
}

// lineage writes three snapshots, one after the other.
func (b *bench) lineage(ctx context.Context, second, third *best) error {
	p, err := b.newPlace(ctx, local, storage.Options{Codec: storage.CodecZstd})
	if err != nil {
		return err
	}
	parent, err := p.save(ctx, "first", nil, b.base)
	for i, took := range []*best{second, third} {
		began := time.Now()
		if err == nil {
			parent, err = p.save(ctx, fmt.Sprint("again", i), parent, b.idle)
		}
		took.add(time.Since(began))
	}
	return errors.Join(err, p.remove())
}

// sizes are the sizes of chunks on the curve, in bytes.
var sizes = []int{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}

// curve measures dirty5 for each size of chunks and draws it.
func (b *bench) curve(ctx context.Context) error {
	var points []point
	for _, size := range sizes {
		full, added, err := b.again(ctx, b.base.recut(size), b.dirty.recut(size))
		if err != nil {
			return err
		}
		b.bounded("dedup/dirty5", fmt.Sprintf("%s_%dKiB", storedBytes, size>>10), float64(added), byteUnit, float64(full))
		points = append(points, newPoint(size, full, added))
		if err := b.speed(ctx, size); err != nil {
			return err
		}
	}
	return b.drawCurve(ctx, points)
}

// speed measures what a size of chunks costs in time: a first snapshot, and its restore.
func (b *bench) speed(ctx context.Context, size int) (err error) {
	im := b.base.recut(size)
	into := touched(len(im.raw))
	var write, read best
	for range 3 {
		p, err := b.newPlace(ctx, local, storage.Options{})
		if err != nil {
			return err
		}
		began := time.Now()
		_, err = p.save(ctx, "one", nil, im)
		write.add(time.Since(began))
		if err == nil {
			var r restored
			r, err = restore(ctx, p, local, "one", into)
			read.add(r.took)
		}
		if err := errors.Join(err, p.remove()); err != nil {
			return err
		}
	}
	b.add("dedup/dirty5", fmt.Sprintf("write_%dKiB", size>>10), b.rate(im, write.took), mbPerSecond)
	b.add("dedup/dirty5", fmt.Sprintf("restore_%dKiB", size>>10), b.rate(im, read.took), mbPerSecond)
	return nil
}

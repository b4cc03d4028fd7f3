package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/limit"
)

const (
	successions = 200
	// dirtied is the share of pages that each of the snapshots finds rewritten.
	dirtied = 0.02
	// retained is how many of the snapshots are kept.
	retained = 3
	// fragmented is how much of the heap is used, so that 200 snapshots of it take seconds.
	fragmented = 64 << 20
)

// fragmentation restores the last of 200 successive snapshots of one sandbox, and a fresh one of the
// same content, from the local disk and over a network.
func (b *bench) fragmentation(ctx context.Context) (err error) {
	const name = "fragmentation/200"
	// All in one codec: a mix that the machine's load decides would blur the comparison.
	long, err := b.newPlace(ctx, local, storage.Options{Codec: storage.CodecZstd})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, long.remove()) }()
	fresh, err := b.newPlace(ctx, local, storage.Options{Codec: storage.CodecZstd})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.remove()) }()
	im := b.base.head(fragmented)
	m, most, err := succession(ctx, long, im)
	if err != nil {
		return err
	}
	f, err := fresh.save(ctx, m.Meta.Name, nil, im)
	if err != nil {
		return err
	}
	into := touched(len(im.raw))
	for _, wire := range []struct {
		metric string
		limit.Options
	}{{seconds, local}, {seconds + "_wire100_rtt20", wire100rtt20}} {
		var old, young best
		for range rounds {
			a, err := restore(ctx, long, wire.Options, m.Meta.Name, into)
			if err != nil {
				return err
			}
			c, err := restore(ctx, fresh, wire.Options, m.Meta.Name, into)
			if err != nil {
				return err
			}
			old.add(a.took)
			young.add(c.took)
		}
		b.bounded(name, wire.metric, old.took.Seconds(), second, young.took.Seconds())
	}
	b.bounded(name, "packs", float64(len(m.Packs)), count, float64(len(f.Packs)))
	b.add(name, "packs_at_most", float64(most), count)
	return nil
}

// succession writes the snapshots, each the child of the one before. The image ends as the last of
// them is. It returns that one's manifest, and the most packs that any of them named.
func succession(ctx context.Context, p *place, im *image) (m *storage.Manifest, most int, err error) {
	r := rand.New(rand.NewPCG(2, 0))
	for i := range successions {
		if i > 0 {
			im.rewrite(dirtied, r)
		}
		if m, err = p.save(ctx, fmt.Sprintf("s%03d", i), m, im); err != nil {
			return nil, 0, err
		}
		most = max(most, len(m.Packs))
		if i < retained {
			continue
		}
		if err := p.Remove(ctx, storage.Key{Namespace: namespace, Name: fmt.Sprintf("s%03d", i-retained)}); err != nil {
			return nil, 0, err
		}
		if i%20 == 0 {
			if _, err := p.Sweep(ctx, storage.SweepOptions{Grace: time.Nanosecond}); err != nil {
				return nil, 0, err
			}
		}
	}
	return m, most, nil
}

// head returns a copy of the first size bytes of pages.img, or what there is of it.
func (im *image) head(size int) *image {
	raw := im.raw
	for _, f := range im.layout {
		length := layout{f}.size()
		if length < size {
			raw = raw[length:]
			continue
		}
		out := &image{raw: append([]byte(nil), raw[:size]...)}
		out.layout = layout{cutFile{f.Name, f.Chunks}.first(size)}
		return out
	}
	return &image{raw: append([]byte(nil), im.raw...), layout: im.layout}
}

// first keeps the chunks of the first size bytes.
func (f cutFile) first(size int) cutFile {
	out := cutFile{Name: f.Name}
	for _, n := range f.Chunks {
		if n = min(n, size); n == 0 {
			break
		}
		out.Chunks = append(out.Chunks, n)
		size -= n
	}
	return out
}

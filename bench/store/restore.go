package main

import (
	"context"
	"errors"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/limit"
)

// restored is what one restore took.
type restored struct {
	took     time.Duration // manifest included
	first    time.Duration // to the first byte of a chunk in the middle, behind the manifest
	requests int64
	read     int64
}

// restore reads all of a snapshot of a store behind a wire.
func restore(ctx context.Context, at *place, wire limit.Options, name string, into []byte) (r restored, err error) {
	p, err := at.behind(ctx, wire, storage.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.calls.Close()) }()
	return p.restore(ctx, name, into)
}

// restore reads all of a snapshot.
func (p *place) restore(ctx context.Context, name string, into []byte) (r restored, err error) {
	p.calls.reset()
	began := time.Now()
	m, err := p.Manifest(ctx, storage.Key{Namespace: namespace, Name: name})
	if err != nil {
		return r, err
	}
	if err := readAll(ctx, storage.NewReader(m, p.Store), m, into); err != nil {
		return r, err
	}
	r.took, r.requests, r.read = time.Since(began), p.calls.requests.Load(), p.calls.read.Load()
	last := m.Files[len(m.Files)-1]
	began = time.Now()
	reader := storage.NewReader(m, p.Store)
	err = reader.ReadAt(ctx, last.Name, last.Size/2, [][]byte{into[:1]})
	r.first = time.Since(began)
	return r, errors.Join(err, reader.Close())
}

// readAll reads all files, one behind the other.
func readAll(ctx context.Context, r *storage.Reader, m *storage.Manifest, into []byte) error {
	for _, f := range m.Files {
		if err := r.ReadAt(ctx, f.Name, 0, [][]byte{into[:f.Size]}); err != nil {
			return errors.Join(err, r.Close())
		}
		into = into[f.Size:]
	}
	return r.Close()
}

// touched returns memory that is there already, as a sandbox's is.
func touched(size int) []byte {
	memory := make([]byte, size)
	for i := 0; i < size; i += page {
		memory[i] = 1
	}
	return memory
}

// reading is a round of a restore in one codec, beside loops over the same chunks on all cores.
type reading struct {
	whole    restored
	loop     time.Duration // decode and verify, into memory as large as the image
	cached   time.Duration // the same into a buffer that never leaves the processor's cache
	decoding time.Duration // into that buffer, without verifying
}

// restoreHeap compares a restore from the local disk with the loop that decodes and verifies the same
// chunks from memory into the same memory, on all cores; of a snapshot in zstd, and in S2.
func (b *bench) restoreHeap(ctx context.Context) error {
	const name = "restore/heap"
	for _, c := range []struct {
		codec  storage.Codec
		suffix string
	}{{storage.CodecZstd, ""}, {storage.CodecS2, "_s2"}} {
		r, err := b.restoreIn(ctx, c.codec)
		if err != nil {
			return err
		}
		b.bounded(name, throughput+c.suffix, b.rate(b.base, r.whole.took), mbPerSecond, b.rate(b.base, r.loop))
		b.add(name, "throughput_loop_in_cache"+c.suffix, b.rate(b.base, r.cached), mbPerSecond)
		b.add(name, "throughput_loop_in_cache_without_verify"+c.suffix, b.rate(b.base, r.decoding), mbPerSecond)
		b.bounded(name, seconds+c.suffix, r.whole.took.Seconds(), second, r.loop.Seconds())
		b.add(name, "read_bytes"+c.suffix, float64(r.whole.read), byteUnit)
		b.add(name, requests+c.suffix, float64(r.whole.requests), count)
	}
	return nil
}

// restoreIn measures restores of a snapshot in a codec.
func (b *bench) restoreIn(ctx context.Context, codec storage.Codec) (r reading, err error) {
	p, err := b.newPlace(ctx, local, storage.Options{Codec: codec})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	m, err := p.save(ctx, "one", nil, b.base)
	if err != nil {
		return r, err
	}
	work, err := workOf(ctx, p, m, b.base)
	if err != nil {
		return r, err
	}
	into := touched(len(b.base.raw))
	inPlace := placed(work, into)
	var list []reading
	for range rounds {
		whole, err := restore(ctx, p, local, "one", into)
		if err != nil {
			return r, err
		}
		list = append(list, reading{whole, decodeAndVerify(inPlace), decodeAndVerify(work), decodeAlone(work)})
	}
	return middle(list, func(r reading) float64 { return ratio(r.whole.took, r.loop) }), nil
}

// restoreWire compares a restore over a network with the time that the network needs for the bytes.
func (b *bench) restoreWire(ctx context.Context) (err error) {
	const name = "restore/wire100-rtt20"
	p, err := b.newPlace(ctx, wire100rtt20, storage.Options{}) // so written as it would be over it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	if _, err := p.save(ctx, "one", nil, b.base); err != nil {
		return err
	}
	into := touched(len(b.base.raw))
	var whole best
	var last restored
	for range 3 {
		if last, err = restore(ctx, p, wire100rtt20, "one", into); err != nil {
			return err
		}
		whole.add(last.took)
	}
	wire, err := b.wireAlone(ctx, limit.Options{Up: wire100rtt20.Down, Latency: wire100rtt20.Latency}, last.read)
	if err != nil {
		return err
	}
	b.bounded(name, throughput, b.rate(b.base, whole.took), mbPerSecond, b.rate(b.base, wire))
	b.bounded(name, seconds, whole.took.Seconds(), second, wire.Seconds())
	b.add(name, "first_byte_round_trips", last.first.Seconds()/wire100rtt20.Latency.Seconds(), count)
	b.add(name, "read_bytes", float64(last.read), byteUnit)
	b.add(name, requests, float64(last.requests), count)
	return nil
}

package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/limit"
)

// wire100 carries 100 MB/s up and down; wire100rtt20 answers 20 ms later; wire20rtt20 is slow too.
var (
	wire100      = limit.Options{Up: 100e6, Down: 100e6}
	wire100rtt20 = limit.Options{Up: 100e6, Down: 100e6, Latency: 20 * time.Millisecond}
	wire20rtt20  = limit.Options{Up: 20e6, Down: 20e6, Latency: 20 * time.Millisecond}
)

// stored is what one write of a snapshot took.
type stored struct {
	took     time.Duration
	bytes    int64 // of all objects
	requests int64
	work     []work // if asked for
}

// store writes an image to a fresh store and removes that.
func (b *bench) store(ctx context.Context, im *image, wire limit.Options, o storage.Options,
	withWork bool,
) (s stored, err error) {
	p, err := b.newPlace(ctx, wire, o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	settle()
	m, s, err := p.write(ctx, im)
	if err != nil {
		return s, err
	}
	if s.bytes, err = p.size(ctx); err == nil && withWork {
		fast, openErr := p.behind(ctx, local, storage.Options{})
		if openErr != nil {
			return s, openErr
		}
		s.work, err = workOf(ctx, fast, m, im)
		err = errors.Join(err, fast.calls.Close())
	}
	return s, err
}

// write makes the snapshot "one" of an image.
func (p *place) write(ctx context.Context, im *image) (m *storage.Manifest, s stored, err error) {
	p.calls.reset()
	began := time.Now()
	m, err = p.save(ctx, "one", nil, im)
	s.took, s.requests = time.Since(began), p.calls.requests.Load()
	return m, s, err
}

// memoryOf returns the most memory that writing an image takes.
func (b *bench) memoryOf(ctx context.Context, im *image, wire limit.Options, o storage.Options) (int64, error) {
	return mostMemory(func() error {
		_, err := b.store(ctx, im, wire, o, false)
		return err
	})
}

// pipeline is how long the whole way from raw chunks to a durable snapshot takes in one codec, beside
// parts of it, on all cores, on the same chunks.
type pipeline struct {
	rounds []written
	last   stored
}

// written is a round of that.
type written struct{ whole, codec, digests time.Duration } // codec: alone; digests: and the codec

func (p *pipeline) middle() written {
	return middle(p.rounds, func(w written) float64 { return ratio(w.whole, w.codec) })
}

// replicateHeap compares the whole way with the codec alone. Only with a codec that is given do both
// do the same work: what is chosen on a fast disk may be no codec at all.
func (b *bench) replicateHeap(ctx context.Context) error {
	const name = "replicate/heap"
	var zstd, s2, auto pipeline
	codecs := map[storage.Codec]*pipeline{storage.CodecZstd: &zstd, storage.CodecS2: &s2, storage.CodecAuto: &auto}
	for range manyRounds {
		for codec, p := range codecs {
			if err := b.measure(ctx, codec, p); err != nil {
				return err
			}
		}
	}
	var memory int64
	for codec := range codecs {
		took, err := b.memoryOf(ctx, b.base, local, storage.Options{Codec: codec})
		if err != nil {
			return err
		}
		memory = max(memory, took)
	}
	inZstd, inS2 := zstd.middle(), s2.middle()
	b.bounded(name, throughput, b.rate(b.base, inZstd.whole), mbPerSecond, b.rate(b.base, inZstd.codec))
	b.add(name, "throughput_codec_and_digests_alone", b.rate(b.base, inZstd.digests), mbPerSecond)
	b.bounded(name, "throughput_s2", b.rate(b.base, inS2.whole), mbPerSecond, b.rate(b.base, inS2.codec))
	b.add(name, "throughput_s2_and_digests_alone", b.rate(b.base, inS2.digests), mbPerSecond)
	b.add(name, "throughput_auto", b.rate(b.base, auto.middle().whole), mbPerSecond)
	b.bounded(name, seconds, inZstd.whole.Seconds(), second, inZstd.codec.Seconds())
	b.add(name, "raw_bytes", float64(len(b.base.raw)), byteUnit)
	b.add(name, storedBytes, float64(zstd.last.bytes), byteUnit)
	b.add(name, storedBytes+"_s2", float64(s2.last.bytes), byteUnit)
	b.add(name, storedBytes+"_auto", float64(auto.last.bytes), byteUnit)
	b.add(name, requests, float64(zstd.last.requests), count)
	b.add(name, peakRSS, float64(memory), byteUnit)
	b.add(name, "cores", float64(runtime.GOMAXPROCS(0)), count)
	return nil
}

// measure adds a round.
func (b *bench) measure(ctx context.Context, codec storage.Codec, p *pipeline) error {
	s, err := b.store(ctx, b.base, local, storage.Options{Codec: codec}, true)
	if err != nil {
		return err
	}
	p.rounds = append(p.rounds, written{s.took, encodeAlone(s.work), encodeAndDigest(s.work)})
	s.work = nil // its memory would count in the next round
	p.last = s
	return nil
}

// replicateWire compares stored bytes per second with what the wire alone carries.
func (b *bench) replicateWire(ctx context.Context) error {
	const name = "replicate/wire100"
	var whole best
	var fastest stored
	for range rounds {
		s, err := b.store(ctx, b.base, wire100, storage.Options{}, false)
		if err != nil {
			return err
		}
		if whole.add(s.took); whole.took == s.took {
			fastest = s
		}
	}
	memory, err := b.memoryOf(ctx, b.base, wire100, storage.Options{})
	if err != nil {
		return err
	}
	wire, err := b.wireAlone(ctx, wire100, fastest.bytes)
	if err != nil {
		return err
	}
	mb := float64(fastest.bytes) / 1e6
	b.bounded(name, "stored_throughput", mb/whole.took.Seconds(), mbPerSecond, mb/wire.Seconds())
	b.add(name, throughput, b.rate(b.base, whole.took), mbPerSecond)
	b.bounded(name, seconds, whole.took.Seconds(), second, wire.Seconds())
	b.add(name, storedBytes, float64(fastest.bytes), byteUnit)
	b.add(name, requests, float64(fastest.requests), count)
	b.add(name, peakRSS, float64(memory), byteUnit)
	return nil
}

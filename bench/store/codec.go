package main

import (
	"context"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/limit"
)

// codecs compares the measured choice of codecs with the best fixed one, by the time that a
// snapshot takes.
func (b *bench) codecs(ctx context.Context) error {
	const name = "codec/adaptive"
	for _, w := range []struct {
		suffix string
		wire   limit.Options
		rounds int
	}{{"local", local, rounds}, {"wire100", wire100, 3}, {"wire20_rtt20", wire20rtt20, 2}} {
		times, err := b.compare(ctx, w.wire, w.rounds)
		if err != nil {
			return err
		}
		least := time.Duration(0)
		for codec, took := range times {
			if codec != storage.CodecAuto && (least == 0 || took < least) {
				least = took
			}
		}
		b.bounded(name, seconds+"_"+w.suffix, times[storage.CodecAuto].Seconds(), second, least.Seconds())
		for _, codec := range []storage.Codec{storage.CodecNone, storage.CodecS2, storage.CodecZstd} {
			b.add(name, seconds+"_"+w.suffix+"_"+codec.String(), times[codec].Seconds(), second)
		}
	}
	return nil
}

// compare returns how long a snapshot takes in each codec, and in what is chosen.
func (b *bench) compare(ctx context.Context, wire limit.Options, rounds int) (map[storage.Codec]time.Duration, error) {
	times := map[storage.Codec]time.Duration{}
	for range rounds {
		for _, codec := range []storage.Codec{storage.CodecAuto, storage.CodecNone, storage.CodecS2, storage.CodecZstd} {
			s, err := b.store(ctx, b.base, wire, storage.Options{Codec: codec}, false)
			if err != nil {
				return nil, err
			}
			kept := best{times[codec]}
			kept.add(s.took)
			times[codec] = kept.took
		}
	}
	return times, nil
}

package format

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Idle zstd codecs. Each serves one call at a time. A pool gives a processor the codec that it used last, so that the
// codec's working data, above all an encoder's table, is still in that processor's cache. One shared codec would give
// its tables to whichever caller comes next.
var (
	encoders      = sync.Pool{New: func() any { return newEncoder() }}
	chunkDecoders = sync.Pool{New: func() any { return newDecoder(MaxChunk) }}
	tableDecoders = sync.Pool{New: func() any { return newDecoder(maxTable) }}
)

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}

// newDecoder makes a decoder that writes only within the capacity it is given, and refuses frames that need more than
// max bytes.
func newDecoder(max uint64) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}

// worthwhile reports whether storing n bytes instead of raw is worth a decode: whether it saves more than 1/32.
func worthwhile(n, raw int) bool { return n < raw-raw/32 }

// Compress returns how to store raw, and the bytes to store: either raw itself, or a block in dst's memory, which grows
// if it is too small. The codec is the requested one, or CodecNone if that one does not save enough.
func Compress(codec Codec, dst, raw []byte) (Codec, []byte) {
	block := raw
	switch codec {
	case CodecZstd:
		block = encodeFrame(dst[:0], raw)
	case CodecS2:
		block = s2.Encode(dst[:cap(dst)], raw)
	}
	if !worthwhile(len(block), len(raw)) {
		return CodecNone, raw
	}
	return codec, block
}

// Decompress fills dst, whose length is the chunk's raw length, from the stored bytes. Whatever stored holds,
// Decompress writes only to dst[:len(dst)] and never panics.
func Decompress(codec Codec, dst, stored []byte) error {
	switch codec {
	case CodecNone:
		if len(stored) != len(dst) {
			return fmt.Errorf("%d bytes stored, want %d", len(stored), len(dst))
		}
		copy(dst, stored)
		return nil
	case CodecZstd:
		return decodeFrame(&chunkDecoders, dst, stored)
	case CodecS2:
		return expand(dst, stored)
	}
	return fmt.Errorf("%w: %s", ErrFormat, codec)
}

// expand decodes an S2 block of exactly len(dst) bytes into dst, in place.
func expand(dst, block []byte) error {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return err
	}
	if n != len(dst) {
		return fmt.Errorf("decodes to %d bytes, want %d", n, len(dst))
	}
	_, err = s2.Decode(dst[:n:n], block)
	return err
}

// encodeFrame appends a zstd frame of raw to dst.
func encodeFrame(dst, raw []byte) []byte {
	e := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(e)
	return e.EncodeAll(raw, dst)
}

// decodeFrame decodes a zstd frame of exactly len(dst) bytes into dst, in place, with one of the
// decoders.
func decodeFrame(decoders *sync.Pool, dst, frame []byte) error {
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	out, err := d.DecodeAll(frame, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) {
		return fmt.Errorf("decodes to %d bytes, want %d", len(out), len(dst))
	}
	if len(out) > 0 && &out[0] != &dst[0] {
		return errors.New("decoder left its buffer")
	}
	return nil
}

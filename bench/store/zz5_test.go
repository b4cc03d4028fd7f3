package main

import (
	"context"
	"os"
	"testing"

	"github.com/zeebo/blake3"
	"github.com/zeebo/xxh3"

	"diapause.dev/storage"
)

func TestWW(t *testing.T) {
	b := &bench{}
	ctx := context.Background()
	var err error
	if b.root, err = moduleRoot(ctx); err != nil {
		t.Fatal(err)
	}
	if b.data, err = prepare(ctx, b.root); err != nil {
		t.Fatal(err)
	}
	b.scratch = os.Getenv("SCRATCH")
	p, err := b.newPlace(ctx, local, storage.Options{Codec: storage.CodecZstd})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.save(ctx, "one", nil, b.base)
	if err != nil {
		t.Fatal(err)
	}
	list, err := workOf(ctx, p, m, b.base)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := blake3.NewKeyed(make([]byte, 32))
	for range 6 {
		a := timed(func() { encodeAlone(list) })
		w := timed(func() { onAllCores(list, func(w work, buf []byte) { digests.Sum(w.raw); encode(w.codec, w, buf) }) })
		n := timed(func() {
			onAllCores(list, func(w work, buf []byte) {
				h := h.Clone()
				h.Write(w.raw)
				var s [32]byte
				h.Sum(s[:0])
				encode(w.codec, w, buf)
			})
		})
		x := timed(func() { onAllCores(list, func(w work, buf []byte) { xxh3.Hash128(w.raw); encode(w.codec, w, buf) }) })
		after := timed(func() { onAllCores(list, func(w work, buf []byte) { encode(w.codec, w, buf); digests.Sum(w.raw) }) })
		d := timed(func() { onAllCores(list, func(w work, buf []byte) { digests.Sum(w.raw) }) })
		t.Logf("alone %v | wide %v | narrow %v | xxh3 %v | wide after %v | wide only %v", a, w, n, x, after, d)
	}
	p.remove()
}

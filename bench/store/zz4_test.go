package main

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"diapause.dev/storage"
)

func TestXX(t *testing.T) {
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
	codec := storage.CodecZstd
	if os.Getenv("CODEC") == "s2" {
		codec = storage.CodecS2
	}
	p, err := b.newPlace(ctx, local, storage.Options{Codec: codec})
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
	into := touched(len(b.base.raw))
	type job struct{ w work; dst []byte }
	var jobs []job
	off := 0
	for _, w := range list {
		jobs = append(jobs, job{w, into[off : off+len(w.raw) : off+len(w.raw)]})
		off += len(w.raw)
	}
	loop := func(verify bool) {
		var next atomic.Int64
		var g sync.WaitGroup
		for range 2 {
			g.Go(func() {
				for i := next.Add(1) - 1; int(i) < len(jobs); i = next.Add(1) - 1 {
					out := decode(jobs[i].w, jobs[i].dst)
					if verify {
						digests.Sum(out)
					}
				}
			})
		}
		g.Wait()
	}
	for range 8 {
		var r restored
		rs := timed(func() { r, err = restore(ctx, p, local, "one", into) })
		if err != nil {
			t.Fatal(err)
		}
		hot := timed(func() { decodeAndVerify(list) })
		dst := timed(func() { loop(true) })
		dec := timed(func() { loop(false) })
		dech := timed(func() { decodeAlone(list) })
		t.Logf("restore %v took %d | dv hot %v (%.3f) | dv dst %v (%.3f) | d dst %v | d hot %v", rs, r.took.Milliseconds(), hot, hot.wall.Seconds()/r.took.Seconds(), dst, dst.wall.Seconds()/r.took.Seconds(), dec, dech)
	}
	p.remove()
}

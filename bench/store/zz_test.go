package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/api/snapshot"
)

func cpu() (u, s time.Duration) {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}

type span struct{ wall, user, sys time.Duration }

func (s span) String() string { return fmt.Sprintf("wall %4d user %4d sys %4d", s.wall.Milliseconds(), s.user.Milliseconds(), s.sys.Milliseconds()) }

func timed(f func()) span {
	u, s := cpu()
	t := time.Now()
	f()
	w := time.Since(t)
	u2, s2 := cpu()
	return span{w, u2 - u, s2 - s}
}

func TestZZ(t *testing.T) {
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
	if os.Getenv("CODEC") == "none" {
		codec = storage.CodecNone
	}
	if os.Getenv("CODEC") == "s2" {
		codec = storage.CodecS2
	}
	if f := os.Getenv("PROF"); f != "" {
		w, _ := os.Create(f)
		defer w.Close()
		defer pprof.StopCPUProfile()
		defer func() { }()
		_ = pprof.StartCPUProfile(w)
	}
	for range 6 {
		p, err := b.newPlace(ctx, local, storage.Options{Codec: codec})
		if err != nil {
			t.Fatal(err)
		}
		settle()
		tr := &tracer{Backend: p.calls.Backend}
		p.calls.Backend = tr
		var w *storage.Writer
		var commit span
		var m *storage.Manifest
		var last, first time.Time
		var end time.Time
		begin := time.Now()
		whole := timed(func() {
			w, err = p.NewWriter(ctx, storage.Key{Namespace: namespace, Name: "one"}, storage.WriterOptions{Progress: func(raw, st int64) { last = time.Now(); if first.IsZero() { first = last } }})
			if err != nil {
				t.Fatal(err)
			}
			for file, raw := range b.base.chunks {
				if err := w.File(file).Chunk(raw); err != nil {
					t.Fatal(err)
				}
			}
			commit = timed(func() { m, err = w.Commit(ctx, snapshot.Meta{}) })
			end = time.Now()
			if err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("first laid %v, last laid %v, tail %v", first.Sub(begin), last.Sub(begin), end.Sub(last))
		_ = commit
		t.Logf("last %v end %v", last.Format("05.0000"), end.Format("05.0000"))
		for _, l := range tr.log { t.Log(l) }
		fast, _ := p.behind(ctx, local, storage.Options{})
		work, err := workOf(ctx, fast, m, b.base)
		if err != nil {
			t.Fatal(err)
		}
		by := map[storage.Codec][3]int{}
		for _, w := range work { v := by[w.codec]; v[0]++; v[1] += len(w.raw); v[2] += len(w.stored); by[w.codec] = v }
		t.Log(by, len(b.base.raw))
		if os.Getenv("PROF") == "" {
			enc := timed(func() { encodeAlone(work) })
			dig := timed(func() { encodeAndDigest(work) })
			var list int64
			for _, w := range work { list += int64(len(w.stored)) }
			t.Logf("whole %v | codec %v | +digests %v | ratio wall %.3f cpu %.3f (stored %d chunks %d)", whole, enc, dig, enc.wall.Seconds()/whole.wall.Seconds(), (enc.user+enc.sys).Seconds()/(whole.user+whole.sys).Seconds(), list, len(work))
			into := touched(len(b.base.raw))
			var rest restored
			r := timed(func() { rest, err = restore(ctx, p, local, "one", into) })
			if err != nil { t.Fatal(err) }
			dl := timed(func() { decodeAndVerify(work) })
			da := timed(func() { decodeAlone(work) })
			t.Logf("   restore %v (took %v) | decode+verify %v | decode %v | ratio wall %.3f cpu %.3f", r, rest.took, dl, da, dl.wall.Seconds()/rest.took.Seconds(), (dl.user+dl.sys).Seconds()/(r.user+r.sys).Seconds())
		}
		fast.calls.Close()
		p.remove()
	}
}

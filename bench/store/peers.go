package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"diapause.dev/storage"
	"diapause.dev/storage/limit"
)

// zstdStream does what most tools do: one zstd stream into one object.
func (b *bench) zstdStream(ctx context.Context) error {
	for _, w := range []struct {
		name string
		wire limit.Options
	}{{"peer/zstd-stream/heap", local}, {"peer/zstd-stream/wire100", wire100}} {
		var whole, back best
		var size int64
		for range 3 {
			s, err := b.stream(ctx, w.wire)
			if err != nil {
				return err
			}
			whole.add(s.wrote)
			back.add(s.read)
			size = s.size
		}
		memory, err := mostMemory(func() error {
			_, err := b.stream(ctx, w.wire)
			return err
		})
		if err != nil {
			return err
		}
		b.add(w.name, throughput, b.rate(b.base, whole.took), mbPerSecond)
		b.add(w.name, seconds, whole.took.Seconds(), second)
		b.add(w.name, storedBytes, float64(size), byteUnit)
		b.add(w.name, peakRSS, float64(memory), byteUnit)
		b.add(w.name, "restore_throughput", b.rate(b.base, back.took), mbPerSecond)
	}
	return nil
}

// streamed is what one stream took.
type streamed struct {
	wrote, read time.Duration
	size        int64
}

// stream writes the base image as a stream and reads it back.
func (b *bench) stream(ctx context.Context, wire limit.Options) (s streamed, err error) {
	f, err := os.CreateTemp(b.scratch, "stream-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	settle()
	began := time.Now()
	err = writeStream(ctx, f, b.base.raw, wire)
	s.wrote = time.Since(began)
	if err != nil {
		return s, err
	}
	if s.size, err = f.Seek(0, io.SeekEnd); err != nil {
		return s, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return s, err
	}
	began = time.Now()
	d, err := zstd.NewReader(f)
	if err != nil {
		return s, err
	}
	defer d.Close()
	_, err = io.Copy(io.Discard, d)
	s.read = time.Since(began)
	return s, err
}

// writeStream compresses and writes, and syncs, as the store does.
func writeStream(ctx context.Context, f *os.File, raw []byte, wire limit.Options) error {
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := limit.New(fileSink{f: f}, wire).Create(ctx, "stream", r, 0)
		r.CloseWithError(err)
		sent <- err
	}()
	e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err == nil {
		_, err = io.Copy(e, bytes.NewReader(raw))
		err = errors.Join(err, e.Close())
	}
	w.CloseWithError(err)
	return errors.Join(err, <-sent, f.Sync())
}

// kopiaReport is what the peer prints.
type kopiaReport struct {
	Writes []struct {
		Seconds  float64 `json:"seconds"`
		Stored   int64   `json:"stored_bytes"`
		Requests int64   `json:"requests"`
	} `json:"writes"`
	Read    float64 `json:"read_seconds"`
	PeakRSS int64   `json:"peak_rss"`
}

// kopia stores the same data in kopia's repository, cut in its own way and at the store's size.
func (b *bench) kopia(ctx context.Context) error {
	program := filepath.Join(b.root, ".cache", "bin", "kopia-peer")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(b.root, "bench", "peers", "kopia")
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the peer: %w\n%s", err, out)
	}
	for _, v := range []struct {
		name, splitter string
		up             float64
	}{
		{"peer/kopia/heap", "", 0},
		{"peer/kopia/heap-fixed256k", "FIXED-256K", 0},
		{"peer/kopia/wire100", "", float64(wire100.Up)},
	} {
		if err := b.kopiaRun(ctx, program, v.name, v.splitter, v.up); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) kopiaRun(ctx context.Context, program, name, splitter string, up float64) (err error) {
	work, err := os.MkdirTemp(b.scratch, "kopia-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	files := []string{baseData, idleData, dirtyData, restoredData}
	args := []string{"-dir", work, "-splitter", splitter, "-up", fmt.Sprint(up)}
	for _, f := range files {
		args = append(args, b.path(f))
	}
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return fmt.Errorf("run the peer: %w", err)
	}
	var r kopiaReport
	if err := json.Unmarshal(out, &r); err != nil || len(r.Writes) != len(files) {
		return fmt.Errorf("the peer printed %q: %w", out, err)
	}
	mb := float64(len(b.base.raw)) / 1e6
	b.add(name, throughput, mb/r.Writes[0].Seconds, mbPerSecond)
	b.add(name, seconds, r.Writes[0].Seconds, second)
	b.add(name, requests, float64(r.Writes[0].Requests), count)
	b.add(name, peakRSS, float64(r.PeakRSS), byteUnit)
	b.add(name, "restore_throughput", mb/r.Read, mbPerSecond)
	for i, f := range files {
		b.add(name, storedBytes+"_"+f, float64(r.Writes[i].Stored), byteUnit)
	}
	return nil
}

// fileSink is a backend whose only object is an open file, written as far as the reader goes.
type fileSink struct {
	storage.Backend
	f *os.File
}

// Create implements storage.Backend.
func (s fileSink) Create(_ context.Context, _ string, r io.Reader, _ int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{s.f}, r, make([]byte, 1<<20))
	return err
}

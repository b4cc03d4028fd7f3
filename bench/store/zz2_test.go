package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"diapause.dev/storage"
)

type tracer struct {
	storage.Backend
	mu  sync.Mutex
	log []string
}

func (t *tracer) note(what, name string, b time.Time) {
	t.mu.Lock()
	t.log = append(t.log, fmt.Sprintf("%s %.28s %v..%v", what, name, b.Format("05.0000"), time.Since(b)))
	t.mu.Unlock()
}
func (t *tracer) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	defer t.note("create", name, time.Now())
	return t.Backend.Create(ctx, name, r, size)
}
func (t *tracer) Replace(ctx context.Context, name string, data []byte) error {
	defer t.note("replace", name, time.Now())
	return t.Backend.Replace(ctx, name, data)
}
func (t *tracer) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	defer t.note("list", prefix, time.Now())
	return t.Backend.List(ctx, prefix, fn)
}
func (t *tracer) Delete(ctx context.Context, name string) error {
	defer t.note("delete", name, time.Now())
	return t.Backend.Delete(ctx, name)
}
func (t *tracer) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	defer t.note("stat", name, time.Now())
	return t.Backend.Stat(ctx, name)
}

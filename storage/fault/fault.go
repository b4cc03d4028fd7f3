// Package fault wraps a storage.Backend in one that fails on demand, for tests of code that uses a backend.
package fault

import (
	"context"
	"fmt"
	"io"

	"diapause.dev/storage"
)

// Op names an operation of a Backend.
type Op string

// The operations.
const (
	Create  Op = "create"
	Replace Op = "replace"
	ReadAt  Op = "read"
	Stat    Op = "stat"
	List    Op = "list"
	Delete  Op = "delete"
)

// Fault is what goes wrong with one operation. The zero Fault changes nothing. Several faults happen in the order of
// the fields.
type Fault struct {
	Stall  <-chan struct{} // waits until it is closed, or the context ends
	Before error           // returned; the operation is not done
	During error           // returned halfway: a Create's reader breaks off, a read fills half, a list shows one
	After  error           // returned, although the operation was done
	Short  bool            // a read finds that the object ends halfway: ErrTruncated
	Flip   bool            // a read succeeds with one bit wrong
}

// Hook decides what goes wrong with an operation on a name (for List: on a prefix). Every operation calls it at its
// start, in the caller's goroutine, so calls are concurrent.
type Hook func(op Op, name string) Fault

// Backend is a Backend that fails as its hook says.
type Backend struct {
	storage.Backend
	hook Hook
}

var _ storage.Backend = (*Backend)(nil)

// New wraps b.
func New(b storage.Backend, hook Hook) *Backend { return &Backend{b, hook} }

// run does an operation, with faults before and after it. do handles the others.
func (b *Backend) run(ctx context.Context, op Op, name string, do func(Fault) error) error {
	f := b.hook(op, name)
	if f.Stall != nil {
		select {
		case <-f.Stall:
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", op, name, context.Cause(ctx))
		}
	}
	if f.Before != nil {
		return fmt.Errorf("%s %s: %w", op, name, f.Before)
	}
	if err := do(f); err != nil {
		return err
	}
	if f.After != nil {
		return fmt.Errorf("%s %s: %w", op, name, f.After)
	}
	return nil
}

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	return b.run(ctx, Create, name, func(f Fault) error {
		if f.During != nil {
			half := size / 2
			if size < 0 {
				half = 4096 // the size is not known
			}
			r = io.MultiReader(io.LimitReader(r, half), broken{f.During})
		}
		return b.Backend.Create(ctx, name, r, size)
	})
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// Replace implements storage.Backend. It is atomic, so During is like Before.
func (b *Backend) Replace(ctx context.Context, name string, data []byte) error {
	return b.run(ctx, Replace, name, func(f Fault) error {
		if f.During != nil {
			return fmt.Errorf("%s %s: %w", Replace, name, f.During)
		}
		return b.Backend.Replace(ctx, name, data)
	})
}

// ReadAt implements storage.Backend.
func (b *Backend) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	return b.run(ctx, ReadAt, name, func(f Fault) error {
		fail := f.During
		if f.Short {
			fail = storage.ErrTruncated
		}
		if fail != nil {
			_ = b.Backend.ReadAt(ctx, name, p[:len(p)/2], off) // it fails anyway
			return fmt.Errorf("%s %s: %w", ReadAt, name, fail)
		}
		err := b.Backend.ReadAt(ctx, name, p, off)
		if f.Flip && len(p) > 0 {
			p[len(p)/2] ^= 1
		}
		return err
	})
}

// ReadAll implements storage.Backend. The hook sees it as a ReadAt.
func (b *Backend) ReadAll(ctx context.Context, name string, max int64) (data []byte, err error) {
	err = b.run(ctx, ReadAt, name, func(f Fault) (err error) {
		switch {
		case f.During != nil:
			return fmt.Errorf("%s %s: %w", ReadAt, name, f.During)
		case f.Short:
			return fmt.Errorf("%s %s: %w", ReadAt, name, storage.ErrTruncated)
		}
		data, err = b.Backend.ReadAll(ctx, name, max)
		if f.Flip && len(data) > 0 {
			data[len(data)/2] ^= 1
		}
		return err
	})
	return data, err
}

// Stat implements storage.Backend. During is like Before.
func (b *Backend) Stat(ctx context.Context, name string) (info storage.ObjectInfo, err error) {
	err = b.run(ctx, Stat, name, func(f Fault) (err error) {
		if f.During != nil {
			return fmt.Errorf("%s %s: %w", Stat, name, f.During)
		}
		info, err = b.Backend.Stat(ctx, name)
		return err
	})
	return info, err
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	return b.run(ctx, List, prefix, func(f Fault) error {
		shown := 0
		return b.Backend.List(ctx, prefix, func(o storage.ObjectInfo) error {
			if shown++; f.During != nil && shown > 1 {
				return fmt.Errorf("%s %s: %w", List, prefix, f.During)
			}
			return fn(o)
		})
	})
}

// Delete implements storage.Backend. It is atomic, so During is like Before.
func (b *Backend) Delete(ctx context.Context, name string) error {
	return b.run(ctx, Delete, name, func(f Fault) error {
		if f.During != nil {
			return fmt.Errorf("%s %s: %w", Delete, name, f.During)
		}
		return b.Backend.Delete(ctx, name)
	})
}

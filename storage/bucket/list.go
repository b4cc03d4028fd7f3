package bucket

import (
	"context"
	"fmt"
	"strings"

	"diapause.dev/storage"
)

// maxEmpty is how many pages without an object follow each other.
const maxEmpty = 1000

// List implements storage.Backend for a store below a prefix of its bucket. page returns the objects that come after a
// mark, by their keys, and the mark after them. The first mark and the last are "".
func List(ctx context.Context, below, prefix string, fn func(storage.ObjectInfo) error,
	page func(ctx context.Context, after string) (objects []storage.ObjectInfo, next string, err error),
) error {
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if err := storage.ValidateObject(prefix[:i]); err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
	}
	p := pages{below: below, prefix: below + prefix, fn: fn}
	for mark := ""; ; {
		objects, next, err := page(ctx, mark)
		if err == nil {
			err = p.check(objects)
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
		if err := p.call(objects); err != nil || next == "" {
			return err
		}
		mark = next
	}
}

// pages are those of one list.
type pages struct {
	below, prefix string
	fn            func(storage.ObjectInfo) error
	last          string // the last key
	empty         int    // how many pages without objects came last
}

// check returns an error if a page's objects are not in order behind those of the pages before. So a list ends.
func (p *pages) check(objects []storage.ObjectInfo) error {
	for _, o := range objects {
		if o.Name <= p.last || !strings.HasPrefix(o.Name, p.prefix) {
			return fmt.Errorf("%w: the store lists %.80q after %.80q", storage.ErrUnavailable, o.Name, p.last)
		}
		p.last, p.empty = o.Name, 0
	}
	if p.empty++; p.empty > maxEmpty {
		return fmt.Errorf("%w: the store has sent %d lists without an object, and says that there are more",
			storage.ErrUnavailable, maxEmpty)
	}
	return nil
}

// call calls fn with those objects of a page that are of the store.
func (p *pages) call(objects []storage.ObjectInfo) error {
	for _, o := range objects {
		o.Name = strings.TrimPrefix(o.Name, p.below)
		if storage.ValidateObject(o.Name) != nil {
			continue
		}
		if err := p.fn(o); err != nil {
			return err
		}
	}
	return nil
}

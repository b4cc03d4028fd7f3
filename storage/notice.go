package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A notice is an object in which a sweep says what it is about to delete. doc.go tells how notices
// keep sweeps from hurting those who write meanwhile.
const (
	// noticeLife is how long a notice counts: its sweep deletes nothing any more after half of it.
	noticeLife = 10 * time.Minute
	// maxNotice is how many objects one notice holds.
	maxNotice = 25_000
	// maxNoticeSize bounds a notice, in bytes.
	maxNoticeSize = 16 << 20
)

func noticesDir(namespace string) string { return namespace + "/sweeps/" }

// begin writes an empty notice, which tells the backend's time, and removes those of sweeps that
// died.
func (w *sweep) begin(ctx context.Context) error {
	w.notice = noticesDir(w.namespace) + strings.ToLower(rand.Text())
	b := w.store.backend
	if err := b.Replace(ctx, w.notice, nil); err != nil {
		return err
	}
	info, err := b.Stat(ctx, w.notice)
	if err != nil {
		return errors.Join(err, w.end(ctx))
	}
	w.now = info.Modified
	err = b.List(ctx, noticesDir(w.namespace), func(o ObjectInfo) error {
		if w.now.Sub(o.Modified) < noticeLife {
			return nil
		}
		if err := b.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, w.end(ctx))
	}
	return nil
}

// give gives notice of what is about to be deleted.
func (w *sweep) give(ctx context.Context, condemned []ObjectInfo) error {
	names := make([]string, len(condemned))
	for i, o := range condemned {
		names[i] = o.Name
	}
	return w.store.backend.Replace(ctx, w.notice, encodeNames(w.namespace, names))
}

// end takes the notice away.
func (w *sweep) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	if err := w.store.backend.Delete(ctx, w.notice); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("remove the notice: %w", err)
	}
	return nil
}

// condemned returns which of the objects of a namespace any sweep has given notice of.
func (s *Store) condemned(ctx context.Context, namespace string, objects []string) (found []string, err error) {
	needed := map[string]bool{}
	for _, name := range objects {
		needed[name] = true
	}
	err = s.backend.List(ctx, noticesDir(namespace), func(o ObjectInfo) error {
		data, err := s.readAll(ctx, o.Name, maxNoticeSize)
		if errors.Is(err, ErrNotFound) {
			return nil // its sweep has ended
		}
		if err != nil {
			return err
		}
		for name := range decodeNames(namespace, data) {
			if needed[name] {
				found = append(found, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for sweeps: %w", err)
	}
	return found, nil
}

package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A notice is an object in which a sweep says what it is about to delete. doc.go says how notices keep sweeps from
// hurting concurrent writers.
const (
	// noticeLife is how long a notice counts. Its sweep deletes nothing after half of that time, nor once the notice is
	// gone. After noticeLife others remove the notice.
	noticeLife = 10 * time.Minute
	// maxNotice is how many objects one notice holds.
	maxNotice = 25_000
	// maxNoticeSize bounds a notice, in bytes.
	maxNoticeSize = 16 << 20
)

func noticesDir(namespace string) string { return namespace + "/sweeps/" }

// begin writes an empty notice, which gives the backend's time, and removes the notices of dead sweeps.
func (w *sweep) begin(ctx context.Context) error {
	b := w.store.backend
	clock := w.newNotice()
	if err := b.Replace(ctx, clock, nil); err != nil {
		return errors.Join(err, w.end(ctx))
	}
	info, err := b.Stat(ctx, clock)
	if err != nil {
		return errors.Join(err, w.end(ctx))
	}
	w.now = info.Modified
	err = b.List(ctx, noticesDir(w.namespace), func(o ObjectInfo) error {
		if w.now.Sub(o.Modified) < noticeLife {
			return nil
		}
		return w.store.removeNotice(ctx, o.Name)
	})
	if err != nil {
		return errors.Join(err, w.end(ctx))
	}
	return nil
}

// newNotice returns the name of a notice that does not exist yet. One name for all would not do: object storage limits
// how often per second one object may be written.
func (w *sweep) newNotice() string {
	name := noticesDir(w.namespace) + strings.ToLower(rand.Text())
	w.notices = append(w.notices, name)
	return name
}

// notice is a notice that was given.
type notice struct {
	store *Store
	name  string
	given instant // at the latest
}

// give gives notice of what is about to be deleted.
func (w *sweep) give(ctx context.Context, condemned []ObjectInfo) (notice, error) {
	n := notice{store: w.store, name: w.newNotice(), given: w.store.clock()}
	names := make([]string, len(condemned))
	for i, o := range condemned {
		names[i] = o.Name
	}
	return n, w.store.backend.Replace(ctx, n.name, encodeNames(w.namespace, names))
}

// stands returns an error unless the notice still counts. Others remove notices that are too old, but a sweep that is
// alive and awake stops before that.
func (n notice) stands(ctx context.Context) error {
	if _, err := n.store.backend.Stat(ctx, n.name); err != nil {
		return fmt.Errorf("look for the notice: %w", err)
	}
	if age := n.store.clock.since(n.given); age > noticeLife/2 {
		return fmt.Errorf("%w: the notice is %v old, which is too old to delete anything", ErrUnavailable, age)
	}
	return nil
}

// end removes the sweep's notices.
func (w *sweep) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	var errs []error
	for _, name := range w.notices {
		errs = append(errs, w.store.removeNotice(ctx, name))
	}
	return errors.Join(errs...)
}

func (s *Store) removeNotice(ctx context.Context, name string) error {
	if err := s.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("remove the notice: %w", err)
	}
	return nil
}

// condemned returns which of the given objects any sweep has given notice of, and those notices.
func (s *Store) condemned(ctx context.Context, namespace string,
	objects []string,
) (found, notices []string, err error) {
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
		before := len(found)
		for name := range decodeNames(namespace, data) {
			if needed[name] {
				found = append(found, name)
			}
		}
		if len(found) > before {
			notices = append(notices, o.Name)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for sweeps: %w", err)
	}
	return found, notices, nil
}

// sweepPoll is how often outlast looks whether a sweep has ended.
const sweepPoll = time.Second

// outlast waits until no sweep is about to delete any of the given objects. Each time that it has looked it calls
// again, which brings back what is gone. The caller must have claimed the objects, so sweeps that give notice later
// spare them.
func (s *Store) outlast(ctx context.Context, namespace string, objects []string, again func() error) error {
	for began := s.clock(); ; {
		found, notices, err := s.condemned(ctx, namespace, objects)
		if err != nil {
			return err
		}
		if s.clock.since(began) > noticeLife { // these sweeps are dead, or stop when they miss their notices
			for _, name := range notices {
				if err := s.removeNotice(ctx, name); err != nil {
					return err
				}
			}
			found = nil
		}
		if err := again(); err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		select {
		case <-time.After(sweepPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

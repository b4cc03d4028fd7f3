package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// A notice is an object in which a sweep says what it is about to delete. doc.go says how notices keep sweeps from
// hurting concurrent writers.
const (
	// noticeLife is how long a notice counts. Its sweep deletes nothing after half of that time, nor once the notice is
	// gone or void. After noticeLife others remove the notice, or make it void.
	noticeLife = 10 * time.Minute
	// maxNotice is how many objects one notice holds.
	maxNotice = 25_000
	// maxNoticeSize bounds a notice, in bytes.
	maxNoticeSize = 16 << 20
)

// voidSuffix ends the name of an empty object which says that the notice of that name is void. It is made by who may
// not delete the notice.
const voidSuffix = ".void"

func noticesDir(namespace string) string { return namespace + "/sweeps/" }

// begin writes an empty notice, which gives the backend's time, and removes the notices of dead sweeps. A mark that a
// notice is void goes after the notice.
func (w *sweep) begin(ctx context.Context) error {
	b := w.objects.backend
	clock := w.newNotice()
	if err := b.Replace(ctx, clock, nil); err != nil {
		return errors.Join(err, w.end(ctx))
	}
	info, err := b.Stat(ctx, clock)
	if err != nil {
		return errors.Join(err, w.end(ctx))
	}
	w.now = info.Modified
	var old []string
	err = b.List(ctx, noticesDir(w.namespace), func(o ObjectInfo) error {
		if w.now.Sub(o.Modified) >= noticeLife {
			old = append(old, o.Name)
		}
		return nil
	})
	slices.Sort(old)
	for _, name := range old {
		if err == nil {
			err = removeNotice(ctx, w.objects.backend, name)
		}
	}
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
	backend Backend
	clock   clock
	name    string
	given   instant // at the latest
}

// give gives notice of what is about to be deleted.
func (w *sweep) give(ctx context.Context, condemned []ObjectInfo) (notice, error) {
	n := notice{backend: w.objects.backend, clock: w.clock, name: w.newNotice(), given: w.clock()}
	names := make([]string, len(condemned))
	for i, o := range condemned {
		names[i] = o.Name
	}
	return n, w.objects.backend.Replace(ctx, n.name, encodeNames(w.namespace, names))
}

// stands returns an error unless the notice still counts. Others remove notices that are too old, or make them void,
// but a sweep that is alive and awake stops before that.
func (n notice) stands(ctx context.Context) error {
	there, void := false, false
	err := n.backend.List(ctx, n.name, func(o ObjectInfo) error {
		there = there || o.Name == n.name
		void = void || o.Name == n.name+voidSuffix
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the notice: %w", err)
	}
	if !there || void {
		return fmt.Errorf("look for the notice: another process took this sweep for dead: %w", ErrNotFound)
	}
	if age := n.clock.since(n.given); age > noticeLife/2 {
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
		errs = append(errs, removeNotice(ctx, w.objects.backend, name))
	}
	return errors.Join(errs...)
}

func removeNotice(ctx context.Context, b Backend, name string) error {
	if err := b.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("remove the notice: %w", err)
	}
	return nil
}

// voidNotice ends a notice whose sweep is dead: it removes the notice. If that is not allowed, it makes an object that
// says the same to writers, and to the sweep if it was only suspended.
func voidNotice(ctx context.Context, b Backend, name string) error {
	err := removeNotice(ctx, b, name)
	if !errors.Is(err, ErrDenied) {
		return err
	}
	err = b.Create(ctx, name+voidSuffix, strings.NewReader(""), 0)
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("make the notice of a dead sweep void: %w", err)
	}
	return nil
}

// standing lists the notices of the claim's namespace that are not void. Those that were older than noticeLife when the
// claim was laid, it makes void: their sweeps are dead, or stop. A mark on a younger notice stops its sweep, but no
// writer relies on that: the sweep may have looked just before.
func (c *claim) standing(ctx context.Context) (notices []ObjectInfo, err error) {
	void := map[string]time.Time{}
	err = c.objects.backend.List(ctx, noticesDir(c.namespace), func(o ObjectInfo) error {
		if name, ok := strings.CutSuffix(o.Name, voidSuffix); ok {
			void[name] = o.Modified
		} else {
			notices = append(notices, o)
		}
		return nil
	})
	notices = slices.DeleteFunc(notices, func(o ObjectInfo) bool { return void[o.Name].Sub(o.Modified) >= noticeLife })
	if err != nil || len(notices) == 0 {
		return nil, err
	}
	laid, err := c.objects.backend.Stat(ctx, c.names[len(c.names)-1]) // it tells the backend's time
	if errors.Is(err, ErrNotFound) {
		return notices, nil // a sweep took the claim's owner for dead
	}
	if err != nil {
		return nil, err
	}
	var young []ObjectInfo
	for _, o := range notices {
		if laid.Modified.Sub(o.Modified) < noticeLife {
			young = append(young, o)
		} else if err := voidNotice(ctx, c.objects.backend, o.Name); err != nil {
			return nil, err
		}
	}
	return young, nil
}

// condemned returns which of the given objects any sweep has given notice of, and those notices. The claim must be laid
// to the objects.
func (c *claim) condemned(ctx context.Context, objects []string) (found, notices []string, err error) {
	needed := map[string]bool{}
	for _, name := range objects {
		needed[name] = true
	}
	standing, err := c.standing(ctx)
	for _, o := range standing {
		var data []byte
		data, err = c.objects.readAll(ctx, o.Name, maxNoticeSize)
		if errors.Is(err, ErrNotFound) {
			err = nil // its sweep has ended
			continue
		}
		if err != nil {
			break
		}
		before := len(found)
		for name := range decodeNames(c.namespace, data) {
			if needed[name] {
				found = append(found, name)
			}
		}
		if len(found) > before {
			notices = append(notices, o.Name)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look for sweeps: %w", err)
	}
	return found, notices, nil
}

// intact returns an error unless objects exist and will stay. The claim must be laid to them.
func (c *claim) intact(ctx context.Context, objects []string) error {
	found, _, err := c.condemned(ctx, objects)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s and %d more are being swept", ErrUnavailable, found[0], len(found)-1)
	}
	var group errgroup.Group
	group.SetLimit(checks)
	for _, name := range objects {
		group.Go(func() error {
			_, err := c.objects.backend.Stat(ctx, name)
			if errors.Is(err, ErrNotFound) {
				return fmt.Errorf("%s has been swept meanwhile: %w", name, err)
			}
			return err
		})
	}
	return group.Wait()
}

// sweepPoll is how often outlast looks whether a sweep has ended.
const sweepPoll = time.Second

// outlast waits until no sweep is about to delete any of the given objects. Each time that it has looked it calls
// again, which brings back what is gone. The claim must be laid to the objects, so sweeps that give notice later spare
// them. A notice that is still there after noticeLife becomes void.
func (c *claim) outlast(ctx context.Context, objects []string, again func() error) error {
	for began := c.clock(); ; {
		found, notices, err := c.condemned(ctx, objects)
		if err != nil {
			return err
		}
		if c.clock.since(began) > noticeLife { // these sweeps are dead, or stop when they miss their notices
			for _, name := range notices {
				if err := voidNotice(ctx, c.objects.backend, name); err != nil {
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

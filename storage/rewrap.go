package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage/format"
)

// RewrapOptions of Store.Rewrap.
type RewrapOptions struct {
	Namespace string // "": all that have data keys
	DryRun    bool   // only unwraps the data keys, and writes none

	// Progress, if set, is called with the data keys handled and their total, per namespace.
	Progress func(done, total int64)
}

// RewrapResult counts data keys.
type RewrapResult struct {
	Keys      int // handled
	Rewrapped int // of these: were wrapped by a key other than the current one or, in a dry run, are
	Denied    int // of these: still are, because the credentials do not allow to replace them
}

// Rewrap wraps those data keys anew that are wrapped by a key other than their namespace's current one. Manifests and
// packs stay as they are. Once it has returned nil, former keys are no longer needed for snapshots that existed when it
// began, nor for those made with the current key since; unless Denied says otherwise. It may be interrupted and
// repeated, and may run beside readers and writers. If a key cannot be unwrapped, Rewrap goes on with the others. The
// errors are joined; a namespace without a current key is an ErrKey.
func (s *dataKeys) Rewrap(ctx context.Context, o RewrapOptions) (r RewrapResult, err error) {
	namespaces := []string{o.Namespace}
	if o.Namespace == "" {
		if namespaces, err = s.objects.namespaces(ctx); err != nil {
			return r, fmt.Errorf("rewrap: %w", err)
		}
	}
	var errs []error
	for _, ns := range namespaces {
		if err := s.rewrapNamespace(ctx, ns, o, &r); err != nil {
			errs = append(errs, fmt.Errorf("rewrap namespace %s: %w", ns, err))
		}
	}
	return r, errors.Join(errs...)
}

func (s *dataKeys) rewrapNamespace(ctx context.Context, namespace string, o RewrapOptions, r *RewrapResult) error {
	if err := format.CheckNamespace(namespace); err != nil {
		return err
	}
	ids, err := s.list(ctx, namespace)
	if err != nil || o.Namespace == "" && len(ids) == 0 {
		return err
	}
	ring, err := s.of(namespace)
	if err != nil {
		return err
	}
	if ring.Current == nil && !o.DryRun {
		return fmt.Errorf("%w: no current key", ErrKey)
	}
	var errs []error
	for i, id := range ids {
		did, err := s.rewrap(ctx, namespace, id, ring, o.DryRun || r.Denied > 0)
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
		r.Keys++
		switch {
		case did == denied || did == wrappedByFormer && !o.DryRun:
			r.Denied++
		case did != leftAlone:
			r.Rewrapped++
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(len(ids)))
		}
	}
	return errors.Join(errs...)
}

// list lists the data keys of a namespace.
func (s *dataKeys) list(ctx context.Context, namespace string) (ids []format.KeyID, err error) {
	err = s.objects.backend.List(ctx, format.KeysDir(namespace), func(o ObjectInfo) error {
		if id, ok := format.ParseKeyName(namespace, o.Name); ok {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// rewrapped is what became of a data key.
type rewrapped int

const (
	leftAlone       rewrapped = iota // it is wrapped by the current key, or was swept, or cannot be unwrapped
	replaced                         // it was wrapped anew
	wrappedByFormer                  // it would be, but for the dry run
	denied                           // it would be, but the credentials do not allow that
)

// rewrap wraps a data key anew if need be.
func (s *dataKeys) rewrap(ctx context.Context, namespace string, id format.KeyID, ring Keys,
	dryRun bool,
) (rewrapped, error) {
	name := format.KeyName(namespace, id)
	object, err := s.objects.readAll(ctx, name, int64(format.WrappedSize))
	if errors.Is(err, ErrNotFound) {
		return leftAlone, nil // swept
	}
	if err != nil {
		return leftAlone, err
	}
	l, by, err := format.UnwrapDataKey(namespace, id, object, ring.all())
	if err != nil || ring.Current != nil && by == format.KeyIDOf(*ring.Current) {
		return leftAlone, err
	}
	if dryRun {
		return wrappedByFormer, nil
	}
	err = s.objects.backend.Replace(ctx, name, l.Wrap(namespace, *ring.Current))
	switch {
	case errors.Is(err, ErrDenied):
		return denied, nil
	case err != nil:
		return leftAlone, err
	}
	return replaced, nil
}

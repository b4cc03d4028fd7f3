package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"diapause.dev/storage/failpoint"
)

// claim is an object that says what a manifest is about to name. doc.go tells what it is for.
type claim struct {
	store *Store
	name  string
}

func claimsDir(namespace string) string { return namespace + "/claims/" }

// claim lays claim to objects. A sweep that gives notice from now on spares them, until the claim is
// released or is as old as the sweep's grace.
func (s *Store) claim(ctx context.Context, namespace string, objects []string) (*claim, error) {
	c := &claim{s, claimsDir(namespace) + strings.ToLower(rand.Text())}
	if err := s.backend.Replace(ctx, c.name, encodeNames(namespace, objects)); err != nil {
		return nil, fmt.Errorf("lay claim to what the manifest names: %w", errors.Join(err, c.release(ctx)))
	}
	failpoint.ObjectsClaimed.Hit()
	return c, nil
}

// release takes the claim back. One that stays does no harm but to keep garbage for a while.
func (c *claim) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	if err := c.store.backend.Delete(ctx, c.name); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("release the claim: %w", err)
	}
	return nil
}

// drop releases the claim, and only logs when that fails.
func (c *claim) drop(ctx context.Context) {
	if err := c.release(ctx); err != nil {
		c.store.log.Warn("a claim is left to the next sweep", "object", c.name, "error", err)
	}
}

// readClaims notes what is claimed, and removes claims that have come of age.
func (w *sweep) readClaims(ctx context.Context) error {
	b := w.store.backend
	return b.List(ctx, claimsDir(w.namespace), func(o ObjectInfo) error {
		if w.now.Sub(o.Modified)+clockGrain >= w.options.Grace {
			if err := b.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}
		data, err := w.store.readAll(ctx, o.Name, maxNoticeSize)
		if errors.Is(err, ErrNotFound) {
			return nil // its manifest has been made, or will not be
		}
		if err != nil {
			return err
		}
		for name := range decodeNames(w.namespace, data) {
			w.claimed[name] = true
		}
		return nil
	})
}

// encodeNames lists objects of a namespace, one a line.
func encodeNames(namespace string, objects []string) []byte {
	var b bytes.Buffer
	for _, name := range objects {
		b.WriteString(strings.TrimPrefix(name, namespace+"/"))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// decodeNames yields the objects that encodeNames has listed.
func decodeNames(namespace string, data []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range bytes.Lines(data) {
			if !yield(namespace + "/" + string(bytes.TrimSuffix(line, []byte("\n")))) {
				return
			}
		}
	}
}

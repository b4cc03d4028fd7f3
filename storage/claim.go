package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"diapause.dev/storage/failpoint"
)

// claim is an object that says which objects a manifest is about to name, or a reader is reading. doc.go says what it
// is for.
type claim struct {
	store *Store
	name  string
	data  []byte
	laid  instant
}

// claimFresh is how old a claim may be, by this machine's clocks, when its manifest is about to be created. It is far
// below the grace of any sweep that leaves writers enough time.
const claimFresh = 10 * time.Second

func claimsDir(namespace string) string { return namespace + "/claims/" }

// newClaim returns a claim to objects. The caller must lay it.
func (s *Store) newClaim(namespace string, objects []string) *claim {
	return &claim{
		store: s, name: claimsDir(namespace) + strings.ToLower(rand.Text()),
		data: encodeNames(namespace, objects),
	}
}

// lay writes the claim. A sweep that gives notice later spares the objects, until the claim is released or is as old as
// the sweep's grace.
func (c *claim) lay(ctx context.Context) error {
	began := c.store.clock()
	if err := c.store.backend.Replace(ctx, c.name, c.data); err != nil {
		return fmt.Errorf("lay claim to what the manifest names: %w", err)
	}
	c.laid = began
	failpoint.ObjectsClaimed.Hit()
	return nil
}

// refresh lays the claim again if it has become old.
func (c *claim) refresh(ctx context.Context) error {
	if c.store.clock.since(c.laid) < claimFresh {
		return nil
	}
	return c.lay(ctx)
}

// release deletes the claim, whether it was laid or not. A claim that stays only keeps garbage for a while.
func (c *claim) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	if err := c.store.backend.Delete(ctx, c.name); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("release the claim: %w", err)
	}
	return nil
}

// drop releases the claim. If that fails, it only logs the error.
func (c *claim) drop(ctx context.Context) {
	if err := c.release(ctx); err != nil {
		c.store.log.Warn("a claim is left to the next sweep", "object", c.name, "error", err)
	}
}

// readClaims records what is claimed, and deletes expired claims.
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
			return nil // released meanwhile: its manifest exists, or will not be made
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

// encodeNames lists objects of a namespace, one per line.
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

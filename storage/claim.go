package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"diapause.dev/storage/failpoint"
)

// claim says which objects a manifest is about to name, or a reader is reading. doc.go says what it is for. It is an
// object, and a new one each time it is laid: who may not delete may not overwrite either.
type claim struct {
	objects   *objects
	clock     clock
	namespace string
	data      []byte
	names     []string // of the objects that may exist; those that certainly do come last
	laid      instant

	mayNotDelete bool // these credentials may not delete objects
}

// claimFresh is how old a claim may be, by this machine's clocks, when its manifest is about to be created. It is far
// below the grace of any sweep that leaves writers enough time.
const claimFresh = 10 * time.Second

// confirmTimeout bounds requests that must be made even after the caller's context has ended.
const confirmTimeout = 10 * time.Second

// releasedSuffix ends the name of an empty object which says that the claim of that name is released. It is made by who
// may not delete the claim.
const releasedSuffix = ".released"

func claimsDir(namespace string) string { return namespace + "/claims/" }

// claims makes the claims of a store's writers, replications and readers.
type claims struct {
	objects *objects
	clock   clock
}

// to returns a claim to objects. The caller must lay it.
func (c *claims) to(namespace string, objects []string) *claim {
	return &claim{objects: c.objects, clock: c.clock, namespace: namespace, data: encodeNames(namespace, objects)}
}

// lay writes the claim. A sweep that gives notice later spares the objects, until the claim is released or is as old as
// the sweep's grace.
func (c *claim) lay(ctx context.Context) error {
	began, name := c.clock(), claimsDir(c.namespace)+strings.ToLower(rand.Text())
	if err := c.objects.backend.Create(ctx, name, bytes.NewReader(c.data), int64(len(c.data))); err != nil {
		c.names = slices.Insert(c.names, 0, name)
		return fmt.Errorf("lay claim to what the manifest names: %w", err)
	}
	c.names, c.laid = append(c.names, name), began
	failpoint.ObjectsClaimed.Hit()
	return nil
}

// refresh lays the claim again if it has become old.
func (c *claim) refresh(ctx context.Context) error {
	if c.clock.since(c.laid) < claimFresh {
		return nil
	}
	return c.renew(ctx)
}

// renew lays the claim again, and releases earlier objects. It leaves those that a sweep may have listed before they
// were replaced, and not read yet.
func (c *claim) renew(ctx context.Context) error {
	age := c.clock.since(c.laid) // so long ago it replaced what was before it
	if err := c.lay(ctx); err != nil || age < noticeLife {
		return err
	}
	if err := c.releaseFirst(ctx, len(c.names)-2); err != nil {
		c.objects.log.Warn("a claim that was renewed is left for a while", "object", c.names[0], "error", err)
	}
	return nil
}

// release ends the claim, whether it was laid or not. A claim that stays only keeps garbage for a while.
func (c *claim) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	return c.releaseFirst(ctx, len(c.names))
}

// releaseFirst releases the first n of the claim's objects: it deletes them. If that is not allowed, it makes objects
// that say so to sweeps.
func (c *claim) releaseFirst(ctx context.Context, n int) error {
	b := c.objects.backend
	for ; n > 0; n-- {
		err := b.Delete(ctx, c.names[0])
		if errors.Is(err, ErrDenied) {
			c.mayNotDelete = true
			err = b.Create(ctx, c.names[0]+releasedSuffix, strings.NewReader(""), 0)
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrExists) {
			return fmt.Errorf("release the claim: %w", err)
		}
		c.names = c.names[1:]
	}
	return nil
}

// drop releases the claim. If that fails, it only logs the error.
func (c *claim) drop(ctx context.Context) {
	if err := c.release(ctx); err != nil {
		c.objects.log.Warn("a claim is left to the next sweep", "object", c.names[0], "error", err)
	}
}

// readClaims records what is claimed, and deletes claims that are released or have expired.
func (w *sweep) readClaims(ctx context.Context) error {
	var claims []ObjectInfo
	released := map[string]bool{}
	err := w.objects.backend.List(ctx, claimsDir(w.namespace), func(o ObjectInfo) error {
		claims = append(claims, o)
		if name, ok := strings.CutSuffix(o.Name, releasedSuffix); ok {
			released[name] = true
		}
		return nil
	})
	for _, o := range claims {
		if err == nil {
			err = w.readClaim(ctx, o, released[strings.TrimSuffix(o.Name, releasedSuffix)])
		}
	}
	return err
}

func (w *sweep) readClaim(ctx context.Context, o ObjectInfo, released bool) error {
	if released || w.now.Sub(o.Modified)+clockGrain >= w.options.Grace {
		if err := w.objects.backend.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	}
	data, err := w.objects.readAll(ctx, o.Name, maxNoticeSize)
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

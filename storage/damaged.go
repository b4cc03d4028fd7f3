package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage/format"
)

// damagedName is the object beside a manifest that says why the snapshot cannot be restored from this store.
func damagedName(key Key) string { return format.SnapshotDir(key) + "damaged" }

// maxReason bounds the recorded reason of a damage, in bytes.
const maxReason = 4 << 10

// marks are those of damaged snapshots.
type marks struct{ objects *objects }

// MarkDamaged records that a snapshot cannot be restored from this store, and why. New snapshots reuse no chunk of a
// marked one. The mark is removed with the snapshot.
func (s marks) MarkDamaged(ctx context.Context, key Key, reason string) error {
	if err := format.CheckKey(key); err != nil {
		return err
	}
	if reason == "" {
		reason = "no reason was given"
	}
	if err := s.objects.backend.Replace(ctx, damagedName(key), []byte(reason[:min(len(reason), maxReason)])); err != nil {
		return fmt.Errorf("mark snapshot %s as damaged: %w", key, err)
	}
	return nil
}

// UnmarkDamaged removes the mark from a snapshot that is whole again. It is no error if there is no mark.
func (s marks) UnmarkDamaged(ctx context.Context, key Key) error {
	if err := format.CheckKey(key); err != nil {
		return err
	}
	if err := s.objects.backend.Delete(ctx, damagedName(key)); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("unmark snapshot %s: %w", key, err)
	}
	return nil
}

// Damaged returns why a snapshot was marked as damaged, or "" if it is not marked.
func (s marks) Damaged(ctx context.Context, key Key) (reason string, err error) {
	if err := format.CheckKey(key); err != nil {
		return "", err
	}
	b, err := s.objects.readAll(ctx, damagedName(key), maxReason)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look whether snapshot %s is damaged: %w", key, err)
	}
	return string(b), nil
}

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"diapause.dev/storage"
)

// rotations are the results of a rotation by location.
type rotations map[string]storage.RewrapResult

func (rotations) Shared(location string) bool { return strings.HasPrefix(location, "gs://") }

func (r rotations) RotateKeys(_ context.Context, _, location string) (storage.RewrapResult, error) {
	if result, ok := r[location]; ok {
		return result, nil
	}
	return storage.RewrapResult{}, storage.ErrUnavailable
}

// TestRotateKeys: every store that all nodes see is done, after a failure too. Data keys that may not be replaced are a
// failure.
func TestRotateKeys(t *testing.T) {
	stores := rotations{"gs://denied": {Keys: 5, Denied: 4}, "gs://good": {Keys: 3, Rewrapped: 2}}
	var out strings.Builder
	err := rotate(t.Context(), stores, []string{"dir:/own", "gs://away", "gs://denied", "gs://good"}, "", &out)
	if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), "4 data keys") ||
		!strings.Contains(err.Error(), "rotate keys in gs://away") || strings.Contains(err.Error(), "gs://good") {
		t.Error(err)
	}
	for _, want := range []string{"dir:/own: a disk of each node", "gs://good: 3 data keys, 2 rewrapped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

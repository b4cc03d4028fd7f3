package room

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/storage"
)

// TestEnough: if a sandbox is too large, the error has its size and the limit.
func TestEnough(t *testing.T) {
	const perGiB = 16 << 10
	if err := enough(storage.MaxChunks, storage.MaxChunks); err != nil {
		t.Errorf("as much as fits: %v", err)
	}
	err := enough(300*perGiB+1, 200*perGiB)
	if !errors.Is(err, storage.ErrTooManyChunks) || !strings.Contains(err.Error(), "(301 GiB if") ||
		!strings.Contains(err.Error(), "(200 GiB)") {
		t.Errorf("too much: %v", err)
	}
}

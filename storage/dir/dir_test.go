package dir_test

import (
	"path/filepath"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/storagetest"
)

func open(t *testing.T, path string) *dir.Backend {
	t.Helper()
	b, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend { return open(t, filepath.Join(t.TempDir(), "root")) })
}

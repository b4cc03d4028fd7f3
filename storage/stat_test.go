package storage_test

import (
	"errors"
	"os"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

func TestStat(t *testing.T) {
	s := storagetest.NewDir(t)
	image := tinyImage()
	one := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, image)
	storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "two"}, one, image)
	gone := storage.Key{Namespace: "ns", Name: "gone"}
	storagetest.Write(t, s, gone, nil, tinyImage())
	storagetest.Orphan(t, s, gone)
	lost := storagetest.Write(t, s, storage.Key{Namespace: "other", Name: "lost"}, nil, image)
	if err := os.Remove(objectPath(s, "other/packs/"+lost.Packs[0].ID.String())); err != nil {
		t.Fatal(err)
	}
	var last int64
	got, err := s.Stat(t.Context(), storage.StatOptions{Progress: func(done, total int64) { last = total - done }})
	if err != nil || last != 0 {
		t.Fatalf("%v, %d manifests left", err, last)
	}
	stats := one.Stats()
	if got.Snapshots != 3 || got.RawBytes != 3*stats.RawBytes || got.NamedBytes != 3*stats.StoredBytes ||
		got.Packs != 2 || got.Unreferenced != 1 || got.Missing != 1 || got.Damaged != 0 || got.ManifestBytes == 0 {
		t.Errorf("%+v", got)
	}
	got, err = s.Stat(t.Context(), storage.StatOptions{Namespace: "ns"})
	if err != nil || got.Snapshots != 2 || got.DedupRatio() < 1.5 || got.DedupRatio() > 2 {
		t.Errorf("%+v, ratio %v, %v", got, got.DedupRatio(), err)
	}
	overwrite(t, objectPath(s, "ns/snapshots/two/manifest"), []byte("torn"))
	if got, err = s.Stat(t.Context(), storage.StatOptions{Namespace: "ns"}); err != nil || got.Damaged != 1 ||
		got.Snapshots != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Stat(t.Context(), storage.StatOptions{Namespace: "../x"}); !errors.Is(err, storage.ErrInvalidName) {
		t.Errorf("hostile namespace: %v", err)
	}
	if got, err := storagetest.NewDir(t).Stat(t.Context(), storage.StatOptions{}); err != nil ||
		got != (storage.StoreStats{}) || got.DedupRatio() != 0 {
		t.Errorf("empty store: %+v, %v", got, err)
	}
}

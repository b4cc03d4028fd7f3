package place

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
)

// TestCredentials: a bucket is opened with the credentials in its own file. If that cannot be used, the bucket is not
// opened with others.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "theirs.json")
	if err := os.WriteFile(file, []byte(`{"type": "authorized_user"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	a := Access{Credentials: dir}
	_, err := a.Open(t.Context(), "gs://theirs/x")
	if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), file) {
		t.Errorf("with a file that cannot be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.Open(ctx, "gs://others/x"); err == nil || errors.Is(err, storage.ErrDenied) {
		t.Errorf("without a file: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for location, ok := range map[string]bool{
		"dir:/a": true, "gs://bucket": true, "gs://bucket/some/prefix": true,
		"": false, "dir:a": false, "dir:": false, "/a": false, "gs:/bucket": false, "gs://": false, "gs:///prefix": false,
		"s3://bucket": true, "s3://bucket/some/prefix?region=eu-west-1": true, "s3:/bucket": false, "s3://": false,
		"s3://bucket?regoin=eu-west-1": false, "tape:1": false,
		"azblob://account/container": true, "azblob://account/container/p?endpoint=https://h": true,
		"azblob://account": false, "azblob:/account/container": false, "azblob://account/container?region=r": false,
	} {
		if err := Validate(location); (err == nil) != ok || err != nil && !errors.Is(err, errkind.ErrInvalid) {
			t.Errorf("%q: %v", location, err)
		}
	}
}

// TestMakeStore: a store is made once, and keeps its identity.
func TestMakeStore(t *testing.T) {
	location := "dir:" + t.TempDir() + "/store"
	first, made, err := MakeStore(t.Context(), location, false)
	if err != nil || !made || first == "" {
		t.Errorf("%q, %v, %v", first, made, err)
	}
	if again, made, err := MakeStore(t.Context(), location, false); err != nil || made || again != first {
		t.Errorf("once more: %q, %v, %v", again, made, err)
	}
	if _, _, err := MakeStore(t.Context(), "tape:1", false); !errors.Is(err, errkind.ErrInvalid) {
		t.Errorf("no location: %v", err)
	}
}

// TestCheckStore: to look whether there is a store makes none.
func TestCheckStore(t *testing.T) {
	dir := t.TempDir()
	location := "dir:" + dir
	if err := (Access{}).CheckStore(t.Context(), location); err == nil {
		t.Error("there is a store in an empty directory")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("something was made: %v, %v", all, err)
	}
	if _, _, err := MakeStore(t.Context(), location, false); err != nil {
		t.Fatal(err)
	}
	if err := (Access{}).CheckStore(t.Context(), location); err != nil {
		t.Error(err)
	}
}

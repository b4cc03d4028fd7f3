// Package place opens the places where stores are, by their locations, as --store has them: a directory, a bucket of
// Google Cloud Storage or of S3, a container of Azure Blob Storage. It knows no snapshots.
package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
	"diapause.dev/storage/s3"
)

// Default is the location of an agent's store if no other is configured.
const Default = "dir:/var/lib/diapause/store"

// Forms says for help what locations look like.
const Forms = "dir:/path, gs://bucket/prefix, s3://bucket/prefix?region=REGION or azblob://account/container/prefix"

// ErrNoStore is the kind of error for a directory without a store. It may be a mount point where nothing is mounted, so
// the agent makes no store there.
var ErrNoStore = errors.New("there is no store")

// Access says how a backend may be opened.
type Access struct {
	MayMake bool // a directory that is not there
	// AcceptNetwork allows directories of network file systems, where nodes may see each other's changes late.
	AcceptNetwork bool
	// Credentials is a directory with the credentials of buckets, each in a file BUCKET.json, for S3 BUCKET.ini, for Azure
	// ACCOUNT.CONTAINER.ini. A bucket without a file, or all if it is empty, is reached with this process's own.
	Credentials string
}

// Open opens the backend at a location in the syntax of --store.
func (a Access) Open(ctx context.Context, location string) (storage.Backend, error) {
	scheme, rest, ok := strings.Cut(location, ":")
	switch {
	case ok && scheme == "dir" && filepath.IsAbs(rest):
		return openDir(rest, a.MayMake, a.AcceptNetwork)
	case ok && scheme == "gs" && strings.HasPrefix(rest, "//"):
		bucket, prefix, _ := strings.Cut(rest[2:], "/")
		return a.openBucket(ctx, bucket, prefix)
	case ok && scheme == "s3":
		return a.openS3(ctx, location)
	case ok && scheme == "azblob":
		return a.openAzure(ctx, location)
	}
	return nil, badLocation(location)
}

// badLocation says what a location looks like.
func badLocation(location string) error {
	return fmt.Errorf("%w: store %q: want dir:/absolute/path; gs://bucket/prefix; %s; or %s", errkind.ErrInvalid, location,
		s3.Want, azblob.Want)
}

// openS3 opens a bucket of S3 with its own credentials, or with those of this process if there are none for it.
func (a Access) openS3(ctx context.Context, location string) (storage.Backend, error) {
	p, err := s3.Parse(location)
	if err != nil {
		return nil, invalid(err)
	}
	own, err := fileOf(a, location, p.Bucket, s3.CredentialsFile)
	if err != nil {
		return nil, err
	}
	return s3.Open(ctx, p, s3.Options{Credentials: own})
}

// openAzure opens a container of Azure Blob Storage, as openS3 does a bucket.
func (a Access) openAzure(ctx context.Context, location string) (storage.Backend, error) {
	p, err := azblob.Parse(location)
	if err != nil {
		return nil, invalid(err)
	}
	own, err := fileOf(a, location, p.Account+"."+p.Container, azblob.CredentialsFile)
	if err != nil {
		return nil, err
	}
	return azblob.Open(ctx, p, azblob.Options{Credentials: own})
}

// fileOf reads the file of credentials that is for one bucket alone. It returns nil if there is none.
func fileOf[C any](a Access, location, bucket string, read func(path string) (*C, error)) (*C, error) {
	if a.Credentials == "" {
		return nil, nil
	}
	own, err := read(filepath.Join(a.Credentials, bucket+".ini"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open %s: %w: %w", location, storage.ErrDenied, err)
	}
	return own, nil
}

// openBucket opens a bucket with its own credentials, or with those of this process if there are none for it.
func (a Access) openBucket(ctx context.Context, bucket, prefix string) (storage.Backend, error) {
	if a.Credentials == "" {
		return gcs.Open(ctx, bucket, prefix)
	}
	own, err := gcs.CredentialsFile(filepath.Join(a.Credentials, filepath.Base(bucket)+".json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gcs.Open(ctx, bucket, prefix)
	case err != nil:
		return nil, fmt.Errorf("open gs://%s: %w: %w", bucket, storage.ErrDenied, err)
	}
	return gcs.Open(ctx, bucket, prefix, own)
}

func openDir(path string, mayMake, acceptNetwork bool) (storage.Backend, error) {
	if !acceptNetwork {
		if err := dir.CheckShared(path); err != nil {
			return nil, fmt.Errorf("%w; or accept the risk, that snapshots are lost, with --accept-network-directory", err)
		}
	}
	if mayMake {
		return dir.Open(path)
	}
	b, err := dir.OpenExisting(path, storage.Marker)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w in %s", ErrNoStore, path)
	}
	return b, err
}

// Validate returns an error if location is not a valid location of a store.
func Validate(location string) error {
	scheme, rest, _ := strings.Cut(location, ":")
	switch {
	case scheme == "dir" && filepath.IsAbs(rest):
		return nil
	case scheme == "gs" && len(rest) > 2 && rest[:2] == "//" && rest[2] != '/':
		return nil
	case scheme == "s3":
		_, err := s3.Parse(location)
		return invalid(err)
	case scheme == "azblob":
		_, err := azblob.Parse(location)
		return invalid(err)
	}
	return badLocation(location)
}

// invalid gives an error about a location its kind.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
}

package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
	"diapause.dev/storage/s3"
)

// DefaultStore is the location of an agent's store if no other is configured.
const DefaultStore = "dir:/var/lib/diapause/store"

// Locations says for help what locations of stores look like.
const Locations = "dir:/path, gs://bucket/prefix, s3://bucket/prefix?region=REGION or azblob://account/container/prefix"

// errNoStore is the kind of error for a directory without a store. It may be a mount point where nothing is mounted, so
// the agent makes no store there.
var errNoStore = errors.New("there is no store")

// mayMake reports whether an agent may create a store at a location by itself: in a bucket, at DefaultStore, and within
// its own state directory. Any other directory may be a mount point where nothing is mounted.
func (o *Options) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	if isDir && o.StateDir == "" {
		return false
	}
	rel, err := filepath.Rel(o.StateDir, path)
	return !isDir || location == DefaultStore || err == nil && filepath.IsLocal(rel)
}

// MakeStore creates a store at a location, in the syntax of --store, unless there is one. It returns the store's
// identity and whether it was created. It uses this process's own credentials.
func MakeStore(ctx context.Context, location string, acceptNetwork bool) (identity string, made bool, err error) {
	b, err := access{mayMake: true, acceptNetwork: acceptNetwork}.open(ctx, location)
	if err != nil {
		return "", false, err
	}
	defer b.Close()
	_, err = b.ReadAll(ctx, storage.Marker, 0) // limit 0: an existing marker is too large for it
	made = errors.Is(err, storage.ErrNotFound)
	s, err := storage.Open(ctx, b, storage.Options{})
	if err == nil {
		err = checkCreateOnly(ctx, b)
	}
	if err != nil {
		return "", false, err
	}
	return s.Identity(), made, nil
}

// checkCreateOnly returns an error if the service behind a backend lets a second writer overwrite the first. Only some
// backends have to be asked. There must be a store in b.
func checkCreateOnly(ctx context.Context, b storage.Backend) error {
	asked, ok := b.(interface {
		CheckCreateOnly(ctx context.Context, name string) error
	})
	if !ok {
		return nil
	}
	return asked.CheckCreateOnly(ctx, storage.Marker)
}

// CheckStore returns an error if there is no store at the location in the options. It makes none. Of the
// options only those of stores count.
func CheckStore(ctx context.Context, o Options) error {
	b, err := access{acceptNetwork: o.AcceptNetworkDirectory, credentials: o.Credentials}.open(ctx, o.Store)
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.ReadAll(ctx, storage.Marker, maxMarker); err != nil {
		return fmt.Errorf("no store at %s: %w", o.Store, err)
	}
	return nil
}

// maxMarker bounds what CheckStore reads.
const maxMarker = 64 << 10

// access says how a backend may be opened.
type access struct {
	mayMake       bool   // a directory that is not there
	acceptNetwork bool   // see Options.AcceptNetworkDirectory
	credentials   string // see Options.Credentials
	measure       func(storage.Backend) storage.Backend
}

// open opens the backend at a location in the syntax of --store.
func (a access) open(ctx context.Context, location string) (storage.Backend, error) {
	scheme, rest, ok := strings.Cut(location, ":")
	switch {
	case ok && scheme == "dir" && filepath.IsAbs(rest):
		return openDir(rest, a.mayMake, a.acceptNetwork)
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
func (a access) openS3(ctx context.Context, location string) (storage.Backend, error) {
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
func (a access) openAzure(ctx context.Context, location string) (storage.Backend, error) {
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
func fileOf[C any](a access, location, bucket string, read func(path string) (*C, error)) (*C, error) {
	if a.credentials == "" {
		return nil, nil
	}
	own, err := read(filepath.Join(a.credentials, bucket+".ini"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open %s: %w: %w", location, storage.ErrDenied, err)
	}
	return own, nil
}

// openBucket opens a bucket with its own credentials, or with those of this process if there are none for it.
func (a access) openBucket(ctx context.Context, bucket, prefix string) (storage.Backend, error) {
	if a.credentials == "" {
		return gcs.Open(ctx, bucket, prefix)
	}
	own, err := gcs.CredentialsFile(filepath.Join(a.credentials, filepath.Base(bucket)+".json"))
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
		return nil, fmt.Errorf("%w in %s", errNoStore, path)
	}
	return b, err
}

// ValidateStore returns an error if location is not a valid location of a store.
func ValidateStore(location string) error {
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

// checkCredentials returns an error if path is neither empty nor a directory.
func checkCredentials(path string) error {
	if path == "" {
		return nil
	}
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return fmt.Errorf("%w: --bucket-credentials=%s is no directory", errkind.ErrInvalid, path)
	}
	return nil
}

// local reports whether a store is a directory, and so within reach of this node's file system.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }

package snapshots

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/place"
	"diapause.dev/storage"
)

// Options says where a node's snapshots are.
type Options struct {
	// StateDir is for the spool, the cache, and what was found at each location. It must survive a reboot. A process
	// without it makes no store in a directory.
	StateDir string
	Store    string // location of the agent's own store
	StoreID  string // required identity of that store; empty: the identity that was found there first
	Codec    string // of chunks: auto, none, s2 or zstd; empty: auto, but zstd where the store is elsewhere
	Keys     string // directory of encryption keys, see storage/keyring; empty: nothing is encrypted
	// SigningKey is the file of the key that signs the manifests of this node's snapshots; empty: they are not signed.
	// TrustedKeys is the file of the keys whose snapshots are restored; empty: all are. See storage/signing.
	SigningKey, TrustedKeys string

	CacheSize int64 // bytes kept on the node for restores: replicated snapshots, and what was read elsewhere
	// AcceptNetworkDirectory allows stores in directories of network file systems. Such a file system may show a node late
	// what another node has written. Then a sweep on one node may delete what another one has just named.
	AcceptNetworkDirectory bool
	// Credentials is a directory with the credentials of buckets, see place.Access.
	Credentials string
	Cluster     Cluster                               // names further stores; nil: there is none
	Opened      func()                                // called when a store has been opened
	Measure     func(storage.Backend) storage.Backend // nil: stores are not measured
	Logger      *slog.Logger
}

// mayMake reports whether an agent may create a store at a location by itself: in a bucket, at place.Default, and
// within its own state directory. Any other directory may be a mount point where nothing is mounted.
func (o *Options) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	if isDir && o.StateDir == "" {
		return false
	}
	rel, err := filepath.Rel(o.StateDir, path)
	return !isDir || location == place.Default || err == nil && filepath.IsLocal(rel)
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

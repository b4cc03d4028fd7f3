package agent

import (
	"log/slog"
	"time"
)

// Config says where an agent finds and puts things. All paths are absolute.
type Config struct {
	Socket        string        // of the local service
	SidecarSocket string        // for checkpointgofer
	RequestDir    string        // one directory for each request under way; must not survive a reboot
	StoppedDir    string        // markers of sandboxes that were stopped, for the shim
	StateDir      string        // journal and spool; must survive a reboot
	Store         string        // "dir:/path" or "gs://bucket/prefix"
	StoreID       string        // identity that the store must have; empty: the one that it had when it was opened before
	Containerd    string        // containerd's socket
	RunscConfig   string        // the shim's configuration file
	Arena         int64         // bytes of memory for what is captured inside a pause, for each checkpoint
	VolumeLimit   int64         // most bytes of the volumes of a pod that lie on the node, in one snapshot
	CacheSize     int64         // bytes kept on the node for restores: replicated snapshots, and what was read elsewhere
	Codec         string        // of chunks: auto, none, s2 or zstd; empty: auto, but zstd where the store is elsewhere
	Keys          string        // directory of encryption keys, see storage/keyring; empty: nothing is encrypted
	CaptureTime   time.Duration // after which a capture is given up and the sandbox runs on
	Node          string        // name of this node
	MetricsAddr   string        // loopback host:port; empty: no metrics
	Version       string
	Logger        *slog.Logger

	// AcceptNetworkDirectory opens stores in directories of network file systems that may show a node late
	// what another one has done. A sweep of one may then delete what another has just named.
	AcceptNetworkDirectory bool
}

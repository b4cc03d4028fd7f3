package agent

import (
	"log/slog"
	"time"

	"diapause.dev/agent/kube"
)

// Config says where an agent finds and stores things. All paths are absolute.
type Config struct {
	Socket        string        // of the local service
	SidecarSocket string        // for checkpointgofer
	RequestDir    string        // one directory for each request under way; must not survive a reboot
	StoppedDir    string        // markers of sandboxes that were stopped, for the shim
	StateDir      string        // journal and spool; must survive a reboot
	Reminders     string        // of pods that sleep, where shims look for them; must survive a reboot
	Past          string        // notes of pods that have run, likewise
	Store         string        // location of the store, as place.Validate wants it
	StoreID       string        // required identity of the store; empty: the identity that was found there first
	Containerd    string        // containerd's socket
	RunscConfig   string        // the shim's configuration file
	Arena         int64         // bytes of memory for what one checkpoint captures in the pause
	PrecopyFrom   int64         // bytes of memory from which on a pod's memory is stored before the pause; 0: never
	PrecopyTime   time.Duration // how long that gives way to what else runs on the node; 0: not at all
	Memory        int64         // bytes of memory for all checkpoints under way together
	DiskFloor     int           // percentage of the spool's disk that checkpoints leave free; 0: none
	BacklogSize   int64         // bytes of snapshots that may wait for their store; 0: any number
	BacklogCount  int           // number of snapshots that may wait for their store; 0: any
	WakeReserve   int64         // bytes of the node's memory that pods leave free when they wake; 0: none, and none waits
	ReadyMemory   int64         // bytes that the sandboxes may take which are created for pods that sleep; 0: none is
	VolumeLimit   int64         // limit in bytes for a pod's volumes on the node, in one snapshot
	CacheSize     int64         // bytes kept on the node for restores: replicated snapshots, and what was read elsewhere
	Codec         string        // of chunks: auto, none, s2 or zstd; empty: auto, but zstd where the store is elsewhere
	Credentials   string        // directory with credentials of buckets, see snapshots.Options
	Keys          string        // directory of encryption keys, see storage/keyring; empty: nothing is encrypted
	SigningKey    string        // file of the key that signs snapshots; empty: they are not signed
	TrustedKeys   string        // file of the keys whose snapshots are restored; empty: all are
	CaptureTime   time.Duration // deadline of a capture; after it the sandbox runs on
	KeepCPULimits bool          // a pod's limit of processor time stays while it is saved or restored
	WorkloadSaves bool          // without a cluster: workloads may save their sandboxes
	Node          string        // name of this node
	MetricsAddr   string        // loopback host:port; empty: no metrics
	Version       string
	Cluster       *kube.Config // the cluster that the node belongs to; New adds what is in this Config, too. nil: none
	Logger        *slog.Logger

	// AcceptNetworkDirectory allows stores in directories of network file systems. Such a file system may show a node late
	// what another node has written. Then a sweep on one node may delete what another one has just named.
	AcceptNetworkDirectory bool
}

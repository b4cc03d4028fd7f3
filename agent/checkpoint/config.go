package checkpoint

import (
	"context"
	"log/slog"
	"time"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// Config is what checkpoints need.
type Config struct {
	Requests      requests.Dir
	SidecarSocket string        // the socket that sidecars connect to
	StoppedDir    string        // markers of sandboxes that were stopped, for the shim
	Arena         int64         // bytes of memory for what one checkpoint captures in the pause
	PrecopyFrom   int64         // bytes of memory from which on a sandbox's memory is stored before the pause; 0: never
	PrecopyTime   time.Duration // how long that gives way to what else runs; 0: not at all
	Pace          *pace.Pace    // by which it does
	VolumeLimit   int64         // limit in bytes for a pod's volumes on the node, in one snapshot
	CaptureTime   time.Duration // deadline of a capture; after it the sandbox runs on
	KeepCPULimits bool          // a pod's limit of processor time stays while it is saved
	WorkloadSaves bool          // without a cluster: workloads may save their sandboxes
	Node          string        // name of this node
	Memory        *budget.Memory
	Disk          *budget.Disk
	Replication   *budget.Replication
	Runtime       Runtime
	Journal       *journal.Journal
	Unsettled     *journal.Unsettled
	Sandboxes     *keylock.Locks // one checkpoint at a time for each sandbox
	Stores        *snapshots.Stores
	Catalog       *snapshots.Catalog
	Replicator    *snapshots.Replicator
	Lineage       *snapshots.Lineage
	Facts         func(ctx context.Context, sandboxPID int) (snapshot.Facts, error) // of a running sandbox
	// Sessions reports whether a session of exec or of a forwarded port has ever begun in a sandbox.
	Sessions func(sandbox string) bool
	// Load waits until a sandbox that is being restored has all its memory.
	Load    func(ctx context.Context, sandbox string, progress func(done, total int64)) (waited bool, err error)
	Changed func(*journal.Record) // called with each step of a request, in order
	Sleeps  Sleeps                // nil: no pod ever sleeps
	Cluster Cluster               // nil: there is none
	Life    *lifetime.Life
	Metrics Metrics
	Logger  *slog.Logger
}

// Runtime is what checkpoints need of containerd. *cri.Client implements it.
type Runtime interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
	Get(ctx context.Context, id string) (*cri.Pod, error)
	Pods(ctx context.Context) ([]*cri.Pod, error)
	Running(ctx context.Context, id string) ([]string, error)
	Record(ctx context.Context, id string) (snapshot.Pod, error)
	Checkpoint(ctx context.Context, id, dir string) error
	Paused(ctx context.Context, id string) (bool, error)
	Resume(ctx context.Context, id string) error
	PauseFor(ctx context.Context, id, request string, d time.Duration) (leased bool, err error)
	RenewPause(ctx context.Context, id, request string, d time.Duration) error
	EndPause(ctx context.Context, id, request string) error
	Kill(ctx context.Context, pod *cri.Pod) error
	KillPaused(ctx context.Context, pod *cri.Pod, request string) error
	EndAsleep(ctx context.Context, pod *cri.Pod, status int) error
}

// Metrics count checkpoints.
type Metrics interface {
	Checkpoint(err error, took time.Duration, stages []snapshot.Stage)
}

// Sleeps are the pods of this node that sleep.
type Sleeps interface {
	// Asleep reports whether the pod of a sandbox sleeps, or is being woken.
	Asleep(sandbox string) bool
	// SleepsOn returns the snapshot on which the pod of a sandbox sleeps. ok is false once the pod may run.
	SleepsOn(sandbox string) (id snapshots.ID, ok bool)
	// Wake wakes the pod of a sandbox, and returns when it runs. If it is awake, nothing is done.
	Wake(ctx context.Context, sandbox string) error
}

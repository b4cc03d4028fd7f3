package restore

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/outside"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/recorded"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// Config says what restores work on.
type Config struct {
	Requests      requests.Dir
	SidecarSocket string // that sidecars connect to
	Marks         *asleep.Marks
	Reminders     *asleep.Reminders
	KeepCPULimits bool  // a pod's limit of processor time stays while it is restored
	VolumeLimit   int64 // limit for all volumes in one snapshot together, in bytes
	Runtime       Runtime
	Readers       *snapshots.Readers
	Lineage       *snapshots.Lineage
	Pace          *pace.Pace                                    // by which loading ahead of need gives way
	Facts         func(context.Context) (snapshot.Facts, error) // of this node
	Cluster       Cluster                                       // is told about failed restores; nil: there is none
	Life          *lifetime.Life
	Metrics       Metrics
	Logger        *slog.Logger
}

// Runtime is what restores need of containerd. *cri.Client implements it.
type Runtime interface {
	Get(ctx context.Context, id string) (*cri.Pod, error)
	Kill(ctx context.Context, pod *cri.Pod) error
	RemoveContainer(ctx context.Context, id string) error
	Unstarted(ctx context.Context) ([]string, error)
	Image(ctx context.Context, containerID string) (name, digest string, err error)
}

// Metrics count restores.
type Metrics interface {
	Restore(err error, took time.Duration, bytes int64)
}

// Cluster is what restores need of the cluster that a node belongs to.
type Cluster interface {
	// NotRestored tells the cluster why a pod could not be restored.
	NotRestored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error)
}

// Restores holds the restores under way on this node. Its methods may be called concurrently.
type Restores struct {
	Config
	log      *slog.Logger
	registry *registry
	opener   *opener
	loader   *loading.Loader
	ahead    *beforehand
	ender    *ender
	reports  *reports
	retries  *retries
	watched  watchedPods
	unwoken  endedWakes
	images   otherImages
}

// New returns the restores of a node. None is under way.
func New(o Config) *Restores {
	rs := &Restores{Config: o, log: o.Logger, reports: &reports{cluster: o.Cluster, life: o.Life}}
	rs.loader = loading.New(loading.Config{Readers: o.Readers, Pace: o.Pace, Life: o.Life, Logger: o.Logger})
	rs.opener = &opener{readers: o.Readers, loader: rs.loader, facts: o.Facts, volumeLimit: o.VolumeLimit}
	rs.registry = &registry{
		records: records{o.Requests}, opener: rs.opener, marks: o.Marks, log: o.Logger, all: make(map[string]*restore),
	}
	rs.ahead = &beforehand{marks: o.Marks, reminders: o.Reminders, life: o.Life}
	rs.ender = &ender{runtime: o.Runtime, reports: rs.reports, life: o.Life, log: o.Logger}
	rs.retries = &retries{runtime: o.Runtime, life: o.Life, log: o.Logger, trying: make(map[string]bool)}
	return rs
}

// Tell tells the cluster in the background why a restore failed.
func (rs *Restores) Tell(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error) {
	rs.reports.tell(ctx, pod, key, err)
}

// Choice says how a new pod starts: restored from a snapshot, or ordinarily.
type Choice struct {
	Snapshot snapshot.Key // zero: an ordinary start
	// UID is the UID of the chosen snapshot. If another snapshot has the key by now, the restore is refused
	// (errkind.ErrReplaced). Empty: any snapshot with the key.
	UID   string
	Store string // the location of its store, in the syntax of agent.Config.Store; empty: any store
	Fail  bool   // a pod that cannot be restored is refused instead of started anew
	// Init holds the names of containers that had ended in the snapshot. They are not run again.
	Init []string
	// Containers is how many of the pod's containers start if only root file systems are restored. The pod is restored
	// once the last of them has started. 0: as many as the snapshot has.
	Containers int
	// Probes are what the kubelet runs in the pod's containers by exec, whatever the choice is.
	Probes []*localv1.ExecProbe
	// Readiness are the kubelet's readiness probes over the network, whatever the choice is.
	Readiness []*localv1.ReadinessProbe

	// Inherited: the cluster has made the snapshot of a sleep one that serves the successors of its pod.
	Inherited bool

	// IgnoreVolumes: the pod is restored although volumes outside its snapshot have changed since.
	IgnoreVolumes bool

	wakes bool // the restore wakes a pod that sleeps
	own   bool // the pod slept, or was woken, when its sandbox was lost
}

// Prepared is a restore that is ready for its sandbox.
type Prepared struct {
	Request    string
	Dir        string // the image path for runsc
	Key        snapshot.Key
	Scope      snapshot.Scope
	Containers int                           // of the snapshot
	Volumes    []string                      // names of the snapshot's volumes
	Payloads   []string                      // directories in it that the kubelet has written (kubelet.Payload)
	Terminals  map[string]*snapshot.Terminal // of its containers, by their names
	ExitCodes  map[string]int32              // of containers that had ended, by their names
}

// Prepare makes everything ready for a sandbox to be restored. It fails if it can tell beforehand that the restore
// cannot succeed. limit is the pod's memory limit in bytes; 0: not known.
func (rs *Restores) Prepare(ctx context.Context, c Choice, pod snapshot.PodRef, sandboxID string, limit int64,
) (Prepared, error) {
	r, dir, err := rs.prepare(ctx, c, pod, sandboxID, limit)
	if err != nil {
		return Prepared{}, err
	}
	meta := r.meta // the reader may have been released by now
	return Prepared{
		Request: r.Request, Dir: dir, Key: r.Key, Scope: r.Scope, Containers: len(meta.Pod.Containers), Volumes: r.volumes,
		Payloads:  r.payloads,
		Terminals: recorded.Terminals(meta.Pod), ExitCodes: recorded.ExitCodes(meta.Pod),
	}, nil
}

func (rs *Restores) prepare(ctx context.Context, c Choice, pod snapshot.PodRef, sandboxID string, limit int64,
) (*restore, string, error) {
	key := c.Snapshot
	if err := key.Validate(); err != nil {
		return nil, "", fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if pod.Namespace != key.Namespace {
		return nil, "", fmt.Errorf("%w: a pod of namespace %q may not be restored from a snapshot of namespace %q",
			errkind.ErrInvalid, pod.Namespace, key.Namespace)
	}
	r := newRestore(record{
		Request: requests.NewID(8), Token: requests.NewID(16), Key: key, UID: rs.watched.expected(c, pod),
		Store: c.Store, SandboxID: sandboxID, Pod: pod, Limit: limit, Wakes: c.wakes,
	})
	if err := rs.opener.open(ctx, r); err != nil {
		return nil, "", err
	}
	err := serves(r.meta, c)
	if err == nil {
		err = recorded.Room(r.meta, limit)
	}
	if err == nil {
		err = rs.images.found(pod, r.UID)
	}
	if err == nil && !c.wakes && !c.IgnoreVolumes { // what others wrote while it slept is its owner's business
		err = outside.Compare(ctx, r.meta, pod.UID)
	}
	if err != nil {
		r.image.Release()
		return nil, "", err
	}
	dir, err := rs.write(r)
	if err != nil {
		r.image.Release()
		return nil, "", err
	}
	rs.registry.add(r)
	rs.watched.begun(r)
	rs.Lineage.Set(sandboxID, r.Scope, key)
	rs.loader.SandboxIsCreated()
	return r, dir, nil
}

// serves refuses the snapshot of a sleep to any pod but its own, unless the cluster has made it one for successors: it
// is the memory of a live pod, with its sessions and secrets.
func serves(m *snapshot.Meta, c Choice) error {
	if m.Purpose != snapshot.ForSleep || c.wakes || c.own || c.Inherited && m.Inheritable {
		return nil
	}
	return fmt.Errorf("%w: snapshot %s is of the sleep of pod %s, and serves that pod alone: checkpoint the pod, and "+
		"restore that snapshot", errkind.ErrInvalid, m.Key, m.Origin.Pod)
}

// write creates the request's directory, with what the sidecar and the next agent must know.
func (rs *Restores) write(r *restore) (string, error) {
	dir := rs.Requests.Path(r.Request)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("request directory: %w", err)
	}
	err := rs.registry.remember(r)
	if err == nil {
		o := sidecar.Options{
			Socket: rs.SidecarSocket, Request: r.Request, Token: r.Token, Direction: sidecar.Restore,
			KeepCPULimit: rs.KeepCPULimits, ReadBytes: r.image.ReadBytes(),
		}
		if r.Scope == snapshot.RootfsOnly {
			o.Direction = sidecar.RootfsRestore
		}
		err = o.Write(dir)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("request directory: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// Source returns the image of the restore that a sidecar belongs to.
func (rs *Restores) Source(o sidecar.Options) (gofer.Source, error) {
	r, err := rs.registry.find(rs.Life.Context(), o.Request)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(r.Token), []byte(o.Token)) != 1 {
		return nil, fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	if rs.Marks.Held(r.Request) {
		rs.ahead.serve(r)
		return &source{rs: rs, restore: r, held: r.decided}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == ended {
		return nil, fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	if rs.Marks.Asleep(r.Request) {
		r.begun()
		rs.ahead.load(r)
	}
	r.serving++
	return &source{rs: rs, restore: r}, nil
}

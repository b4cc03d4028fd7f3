// Package newpods starts new pods from snapshots without Kubernetes. Their shims ask for restores as those of all pods
// do: see package restore.
package newpods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/podnames"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/cri/plan"
	"diapause.dev/runsc/kubelet"
)

// Options says which new pods to start from a snapshot.
type Options struct {
	Key   snapshot.Key
	Name  string // of the new pod; empty: the origin pod's name and a suffix
	Count int    // with more than one, "-0", "-1", ... is added to the name
	// Allow is what the snapshot's record may ask for beyond what every record may.
	Allow []plan.Allowance
	// Progress reports how far a stage is, in bytes. Restored is called for each pod whose containers run, Loaded for each
	// pod that has all its memory. They may be called concurrently.
	Progress         func(stage string, done, total int64)
	Restored, Loaded func(p *cri.Pod, took time.Duration)
}

const (
	// maxCount bounds how many pods one request may start.
	maxCount = 1000
	// startParallel is how many pods are started at once.
	startParallel = 4
)

// removeTime bounds the removal of a pod that cannot be restored.
const removeTime = time.Minute

// Config is what new pods are started with.
type Config struct {
	Runtime  Runtime
	Readers  *snapshots.Readers
	Restores Restores
}

// Runtime is what new pods need of containerd. *cri.Client implements it.
type Runtime interface {
	podnames.Runtime
	RunRestored(ctx context.Context, rec snapshot.Pod, o cri.RunOptions) (*cri.Pod, error)
	RemovePod(ctx context.Context, id string) error
}

// Restores are the restores of this node. *restore.Restores implements it.
type Restores interface {
	// Fit returns why a snapshot cannot be restored on this node, as far as can be known without reading all of it.
	Fit(ctx context.Context, s *snapshots.Reader) error
	// Watch follows the restore of a pod that is about to be made from the snapshot with this UID, until Forget is called.
	Watch(pod, uid string) *restore.WatchedPod
}

// Starter starts pods from snapshots. Its methods may be called concurrently.
type Starter struct {
	Config
	names podnames.Names
}

// New returns what starts new pods on a node.
func New(c Config) *Starter { return &Starter{Config: c} }

// Start starts new pods from a snapshot without Kubernetes. It returns when all of them have all their memory. If some
// pods cannot be restored, Start removes them, and the error names each. The others stay.
func (st *Starter) Start(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if pid, ok, err := new(kubelet.Finder).Running(); err != nil || ok {
		return errors.Join(err, kubeletError(pid, o.Key))
	}
	s, err := st.Readers.Open(ctx, snapshots.ID{Key: o.Key}, "")
	if err != nil {
		return err
	}
	meta := s.Manifest.Meta
	defer st.Readers.Release(s)
	if err := st.Restores.Fit(ctx, s); err != nil {
		return err
	}
	if o.Name == "" {
		o.Name = meta.Origin.Pod + "-" + requests.NewID(3)
	}
	names := o.names()
	release, err := st.names.Claim(ctx, st.Runtime, o.Key.Namespace, names)
	if err != nil {
		return fmt.Errorf("restore %s: %w", o.Key, err)
	}
	defer release()
	errs := make([]error, o.Count)
	var g errgroup.Group
	g.SetLimit(startParallel)
	for i, name := range names {
		g.Go(func() error {
			if err := st.restorePod(ctx, meta, name, o); err != nil {
				errs[i] = fmt.Errorf("restore %s as %s: %w", o.Key, name, err)
			}
			return nil
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// names returns the names of the new pods.
func (o *Options) names() []string {
	if o.Count == 1 {
		return []string{o.Name}
	}
	names := make([]string, o.Count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", o.Name, i)
	}
	return names
}

func (o *Options) check() error {
	if err := o.Key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Count < 0 || o.Count > maxCount {
		return fmt.Errorf("%w: count %d: want 1 to %d", errkind.ErrInvalid, o.Count, maxCount)
	}
	if o.Name != "" && !snapshot.ValidName(o.Name) {
		return fmt.Errorf("%w: pod name %.80q: want at most 253 of a-z, 0-9, '-' and '.'", errkind.ErrInvalid, o.Name)
	}
	return nil
}

func kubeletError(pid int, k snapshot.Key) error {
	return fmt.Errorf("%w (process %d) and would remove a pod that the API server does not know: create a Pod with the "+
		"annotation %s: %q instead",
		errkind.ErrKubelet, pid, podsnapshotv1.AnnotationRestoreFrom, k)
}

// restorePod starts one pod and waits until it has all its memory.
func (st *Starter) restorePod(ctx context.Context, meta snapshot.Meta, name string, o Options) error {
	start := time.Now()
	watched := st.Restores.Watch(o.Key.Namespace+"/"+name, meta.UID)
	defer watched.Forget()
	pod, err := st.Runtime.RunRestored(ctx, meta.Pod, cri.RunOptions{
		Name: name,
		Annotations: map[string]string{
			podsnapshotv1.AnnotationRestoreFrom:      o.Key.String(),
			podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail,
		},
		Allow:    o.Allow,
		Progress: func(stage string) { o.Progress(name+": "+stage, 0, 0) },
	})
	if err != nil {
		return errors.Join(watched.Cause(), err)
	}
	o.Restored(pod, time.Since(start))
	if err := watched.AwaitLoaded(ctx,
		func(done, total int64) { o.Progress(name+": load", done, total) }); err != nil {
		return errors.Join(err, st.removeFailed(ctx, pod))
	}
	o.Loaded(pod, time.Since(start))
	return nil
}

func (st *Starter) removeFailed(ctx context.Context, pod *cri.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	return st.Runtime.RemovePod(ctx, pod.ID)
}

package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/podnames"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/kubelet"
)

// PodsOptions says which new pods to start from a snapshot.
type PodsOptions struct {
	Key   snapshot.Key
	Name  string // of the new pod; empty: the origin pod's name and a suffix
	Count int    // with more than one, "-0", "-1", ... is added to the name
	// Allow is what the snapshot's record may ask for beyond what every record may.
	Allow []cri.Allowance
	// Progress reports how far a stage is, in bytes. Restored is called for each pod whose containers run, Loaded for each
	// pod that has all its memory. They may be called concurrently.
	Progress func(stage string, done, total int64)
	Restored func(p *cri.Pod, took time.Duration)
	Loaded   func(p *cri.Pod, took time.Duration)
}

const (
	// maxCount bounds how many pods one request may start.
	maxCount = 1000
	// startParallel is how many pods are started at once.
	startParallel = 4
)

// Pods starts new pods from a snapshot without Kubernetes. It returns when all of them have all their memory. If some
// pods cannot be restored, Pods removes them, and the error names each. The others stay.
func (rs *Restores) Pods(ctx context.Context, o PodsOptions) error { return rs.starter.start(ctx, o) }

// starter starts pods from snapshots without Kubernetes. Its methods may be called concurrently.
type starter struct {
	runtime Runtime
	readers *snapshots.Readers
	opener  *opener
	names   podnames.Names
	watched watchedPods
}

// start is Restores.Pods.
func (st *starter) start(ctx context.Context, o PodsOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if pid, ok, err := new(kubelet.Finder).Running(); err != nil || ok {
		return errors.Join(err, kubeletError(pid, o.Key))
	}
	s, err := st.readers.Open(ctx, snapshots.ID{Key: o.Key}, "")
	if err != nil {
		return err
	}
	meta := s.Manifest.Meta
	defer st.readers.Release(s)
	if err := st.opener.fit(ctx, s); err != nil {
		return err
	}
	if o.Name == "" {
		o.Name = meta.Origin.Pod + "-" + requests.NewID(3)
	}
	names := o.names()
	release, err := st.names.Claim(ctx, st.runtime, o.Key.Namespace, names)
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
func (o *PodsOptions) names() []string {
	if o.Count == 1 {
		return []string{o.Name}
	}
	names := make([]string, o.Count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", o.Name, i)
	}
	return names
}

func (o *PodsOptions) check() error {
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
func (st *starter) restorePod(ctx context.Context, meta snapshot.Meta, name string, o PodsOptions) error {
	start := time.Now()
	watched := st.watched.watch(o.Key.Namespace+"/"+name, meta.UID)
	defer watched.forget()
	pod, err := st.runtime.RunRestored(ctx, meta.Pod, cri.RunOptions{
		Name: name,
		Annotations: map[string]string{
			podsnapshotv1.AnnotationRestoreFrom:      o.Key.String(),
			podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail,
		},
		Allow:    o.Allow,
		Progress: func(stage string) { o.Progress(name+": "+stage, 0, 0) },
	})
	if err != nil {
		return errors.Join(watched.get().cause(), err)
	}
	o.Restored(pod, time.Since(start))
	if err := awaitLoaded(ctx, watched.get(),
		func(done, total int64) { o.Progress(name+": load", done, total) }); err != nil {
		return errors.Join(err, st.removeFailed(ctx, pod))
	}
	o.Loaded(pod, time.Since(start))
	return nil
}

// loadPoll is how often loading is reported.
const loadPoll = 200 * time.Millisecond

// awaitLoaded waits until a sandbox has all its memory. If ctx ends first, awaitLoaded returns nil and the sandbox goes
// on loading.
func awaitLoaded(ctx context.Context, r *restore, progress func(done, total int64)) error {
	if r == nil {
		return errNotAsked
	}
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			err := r.failure()
			if err == nil {
				progress(r.image.Total(), r.image.Total())
			}
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			progress(r.image.Progress())
		}
	}
}

// errNotAsked says that a pod has started and its shim has not asked the agent whether to restore it.
var errNotAsked = errors.New("the pod was started cold and not restored: does its runtime handler run " +
	"containerd-shim-diapause-v1?")

func (st *starter) removeFailed(ctx context.Context, pod *cri.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	return st.runtime.RemovePod(ctx, pod.ID)
}

package restore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/gofer"
)

// onePod is a Runtime with one pod. It counts what is removed.
type onePod struct {
	Runtime

	mu      sync.Mutex
	pod     cri.Pod
	looks   int // until the sandbox has ended
	removed []string
}

func (o *onePod) Get(context.Context, string) (*cri.Pod, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pod
	p.Ready = o.looks > 0
	o.looks--
	return &p, nil
}

func (o *onePod) Unstarted(context.Context) ([]string, error) { return []string{"sandbox"}, nil }

func (o *onePod) RemoveContainer(_ context.Context, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removed = append(o.removed, id)
	return nil
}

// deaf is a Cluster that listens to nothing.
type deaf struct{}

func (deaf) NotRestored(context.Context, snapshot.PodRef, snapshot.Key, error) {}

// TestInterrupted: if a sandbox ends before it is restored, and one of its containers never started, all its containers
// are removed. Otherwise the kubelet would make no second sandbox for a pod that is never restarted.
func TestInterrupted(t *testing.T) {
	created, exited := cri.Container{ID: "b", State: cri.StateCreated}, cri.Container{ID: "a", State: cri.StateExited}
	failure := errors.New("no such luck")
	report := func(a *rig, r *restore) { a.Reported(r.Request, r.SandboxID, failure) }
	next := func(a *rig) {
		a.config.Cluster = deaf{}
		a.next(t)
	}
	for name, x := range map[string]struct {
		containers []cri.Container
		scope      snapshot.Scope
		end        func(*rig, *restore)
		want       []string
	}{
		"reported":    {[]cri.Container{created}, snapshot.WholePod, report, []string{"b"}},
		"two":         {[]cri.Container{exited, created}, snapshot.WholePod, report, []string{"a", "b"}},
		"all tried":   {[]cri.Container{exited}, snapshot.WholePod, report, nil},
		"files alone": {[]cri.Container{exited, created}, snapshot.RootfsOnly, report, nil},
		"not reported": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, r *restore) {
			a.finish(r, failure)
		}, []string{"b"}},
		"reported late": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, r *restore) {
			a.finish(r, nil) // the sandbox has everything
			report(a, r)
		}, []string{"b"}},
		"reported early": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, r *restore) {
			r.serving = 1
			report(a, r)
			(&source{rs: a.Restores, restore: r}).Ended(gofer.Loaded, nil)
		}, []string{"b"}},
		"files, late": {[]cri.Container{created}, snapshot.RootfsOnly, func(a *rig, r *restore) {
			next(a)
			report(a, r)
		}, nil},
		"given up": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, _ *restore) {
			a.GiveUp("sandbox", failure)
		}, nil},
		"next agent": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, _ *restore) {
			next(a)
			a.retryOrphans()
		}, []string{"b"}},
		"agent killed": {[]cri.Container{created}, snapshot.WholePod, func(a *rig, r *restore) {
			if err := a.Requests.Remove(r.Request); err != nil {
				t.Error(err)
			}
			next(a)
			a.retries.retryUnstarted(t.Context())
		}, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := &onePod{looks: 1, pod: cri.Pod{Namespace: "n", Name: "p", Containers: x.containers}}
			a := newRig(t)
			a.config.Runtime = runtime
			next(a)
			a.make(t, "one", "old!", x.scope)
			x.end(a, a.mustPrepare(t, "sandbox"))
			a.Life.Wait()
			if !slices.Equal(runtime.removed, x.want) {
				t.Errorf("removed %q, want %q", runtime.removed, x.want)
			}
		})
	}
}

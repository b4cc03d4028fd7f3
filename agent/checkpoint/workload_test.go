package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sidecar"
)

// cluster is a cluster that a node belongs to.
type cluster struct {
	description Description
	err         error
	noWorkload  error // refuses saves by workloads
	unconfirmed error // why no snapshot is confirmed

	mu      sync.Mutex
	asked   []snapshot.PodRef
	unsaved []error
}

func (c *cluster) Describe(_ context.Context, pod snapshot.PodRef) (Description, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, pod)
	return c.description, c.err
}

// DescribeWorkload refuses saves of pods that the cluster does not let save themselves.
func (c *cluster) DescribeWorkload(ctx context.Context, pod snapshot.PodRef) (Description, error) {
	if c.noWorkload != nil {
		return Description{}, c.noWorkload
	}
	return c.Describe(ctx, pod)
}

func (c *cluster) Confirmed(context.Context, snapshot.PodRef, snapshot.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unconfirmed
}

func (c *cluster) Name() string { return "of-the-cluster" }

func (c *cluster) Unsaved(_ snapshot.PodRef, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = append(c.unsaved, err)
}

// inCluster returns a rig in a cluster.
func inCluster(t *testing.T, d Description) (*rig, *cluster) {
	t.Helper()
	r, c := newRig(t), &cluster{description: d}
	r.cluster = c
	r.next()
	return r, c
}

// begin makes the workload begin its save, and returns the outcome for its sentry.
func (r *rig) begin(scope snapshot.Scope) error {
	r.t.Helper()
	dir, err := r.PrepareWorkload(sandboxID, scope)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.beginIn(dir)
}

func (r *rig) beginIn(dir string) error {
	r.t.Helper()
	o := optionsIn(r.t, dir)
	err := saveBy(r.Sidecar, o)
	r.Life.Wait()
	return err
}

// optionsIn returns the options that a sidecar reads in the directory of its request.
func optionsIn(t *testing.T, dir string) sidecar.Options {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, sidecar.OptionsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := sidecar.ReadOptions(f)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestWorkloadSavesItself: once its snapshot is safe, the sandbox runs on, or it is ended if the cluster wants that.
func TestWorkloadSavesItself(t *testing.T) {
	for _, scope := range []snapshot.Scope{snapshot.WholePod, snapshot.RootfsOnly} {
		for _, stop := range []bool{false, true} {
			r, c := inCluster(t, Description{Stop: stop, Scope: scope, ServiceAccount: "sa", SpecHash: "hash"})
			r.sandbox.runs = true
			if err := r.begin(scope); err != nil {
				t.Errorf("%s, stop %v: %v", scope, stop, err)
			}
			recs := r.Journal.Records()
			if len(recs) != 1 || recs[0].Stage != journal.StageReplicated || recs[0].Stopped != stop ||
				recs[0].Completed != stop || recs[0].Key.Name != "of-the-cluster" || r.sandbox.isKilled() != stop {
				t.Fatalf("%s, stop %v: the journal says %+v", scope, stop, recs[0])
			}
			found, err := r.Catalog.Find(t.Context(), recs[0].Key)
			if err != nil || found.Manifest.Meta.Scope != scope || found.Manifest.Meta.Origin.ServiceAccount != "sa" ||
				found.Manifest.Meta.Origin.SpecHash != "hash" {
				t.Errorf("%s, stop %v: %+v, %v", scope, stop, found, err)
			}
			if len(c.unsaved) > 0 || c.asked[0].UID != "pod-uid" {
				t.Errorf("the cluster was told %v and asked for %v", c.unsaved, c.asked)
			}
			r.isSound()
		}
	}
}

// TestWorkloadKillFails: if the sandbox cannot be ended, its snapshot is safe and it runs on.
func TestWorkloadKillFails(t *testing.T) {
	r, _ := inCluster(t, Description{Stop: true})
	r.sandbox.runs, r.runtime.failing = true, "kill"
	if err := r.begin(snapshot.WholePod); err != nil {
		t.Error(err)
	}
	rec := r.Journal.Records()[0]
	if rec.Stage != journal.StageSpooled || rec.RunsOn == "" || rec.Stopped || rec.Error != "" {
		t.Errorf("the journal says %+v", rec)
	}
	if now, _ := r.sandbox.now(); now != running {
		t.Errorf("the sandbox is %s", now)
	}
	r.isSound()
}

// TestNotConfirmed: no sandbox is stopped whose snapshot the cluster has not confirmed. One that is to be stopped is
// not even saved; one that has saved itself runs on.
func TestNotConfirmed(t *testing.T) {
	for _, byItself := range []bool{false, true} {
		r, c := inCluster(t, Description{Stop: true})
		c.unconfirmed, r.sandbox.runs = errkind.ErrNotConfirmed, byItself
		stage, failure := journal.StageFailed, ""
		if byItself {
			stage = journal.StageReplicated
			if err := r.begin(snapshot.WholePod); err != nil {
				t.Error(err)
			}
		} else if _, err := r.Checkpoint(t.Context(), r.Life.Context(), Options{Target: sandboxID, Stop: true}); err != nil {
			failure = err.Error()
		}
		rec := r.Journal.Records()[0]
		if rec.Stopped || byItself != (rec.RunsOn != "") || byItself == strings.Contains(failure, "not confirmed") {
			t.Errorf("by itself %v: the journal says %+v, the error is %q", byItself, rec, failure)
		}
		if !byItself && rec.Stage != stage {
			t.Errorf("the journal says %+v", rec)
		}
		if now, _ := r.sandbox.now(); now != running {
			t.Errorf("by itself %v: the sandbox is %s", byItself, now)
		}
		r.isSound()
	}
}

// TestWorkloadIsRefused: if a save is refused, it fails for the workload, and the sandbox runs on. The cluster hears
// why.
func TestWorkloadIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		d       Description
		prepare func(*rig, *cluster)
		want    error
	}{
		"the cluster refuses": {
			Description{},
			func(_ *rig, c *cluster) { c.err = errkind.ErrClusterAway },
			errkind.ErrClusterAway,
		},
		"it may not save itself": {
			Description{},
			func(_ *rig, c *cluster) { c.noWorkload = errkind.ErrNotAllowed },
			errkind.ErrNotAllowed,
		},
		"files alone are wanted": {Description{Scope: snapshot.RootfsOnly}, func(*rig, *cluster) {}, errkind.ErrInvalid},
		"it is being checkpointed": {
			Description{},
			func(r *rig, _ *cluster) { r.Sandboxes.TryLock(sandboxID) },
			errkind.ErrInvalid,
		},
	} {
		for _, scope := range []snapshot.Scope{snapshot.WholePod, snapshot.RootfsOnly} {
			if name == "files alone are wanted" && scope == snapshot.RootfsOnly {
				continue
			}
			t.Run(name+", "+scope.String(), func(t *testing.T) {
				r, cluster := inCluster(t, c.d)
				c.prepare(r, cluster)
				if err := r.begin(scope); err == nil {
					t.Error("the sentry was not refused")
				}
				if len(cluster.unsaved) != 1 || !errors.Is(cluster.unsaved[0], c.want) {
					t.Errorf("the cluster was told %v", cluster.unsaved)
				}
				if now, _ := r.sandbox.now(); now != running || len(r.Journal.Records()) > 0 {
					t.Errorf("the sandbox is %s, the journal has %v", now, r.Journal.Records())
				}
			})
		}
	}
}

// TestHostileWorkloadWithoutCluster: where the operator does not allow it, no workload saves its sandbox.
func TestHostileWorkloadWithoutCluster(t *testing.T) {
	for _, scope := range []snapshot.Scope{snapshot.WholePod, snapshot.RootfsOnly} {
		r := newRig(t)
		r.WorkloadSaves = false
		if err := r.begin(scope); err == nil {
			t.Errorf("%s: the sentry was not refused", scope)
		}
		if now, _ := r.sandbox.now(); now != running || len(r.Journal.Records()) > 0 {
			t.Errorf("%s: the sandbox is %s, the journal has %v", scope, now, r.Journal.Records())
		}
	}
}

// TestWorkloadNotReplicated: a save has not failed if its snapshot is safe on this node.
func TestWorkloadNotReplicated(t *testing.T) {
	r, c := inCluster(t, Description{Store: "dir:/dev/null/store"})
	if err := r.begin(snapshot.WholePod); err != nil {
		t.Error(err)
	}
	if rec := r.Journal.Records()[0]; rec.Stage != journal.StageSpooled || len(c.unsaved) > 0 {
		t.Errorf("the journal says %+v, the cluster was told %v", rec, c.unsaved)
	}
}

// TestHostileWorkload: a save begins only with the token of its request. None begins while the agent stops.
func TestHostileWorkload(t *testing.T) {
	r := newRig(t)
	dir, err := r.PrepareWorkload(sandboxID, snapshot.RootfsOnly)
	if err != nil {
		t.Fatal(err)
	}
	good := optionsIn(t, dir)
	if good.Direction != sidecar.RootfsWorkload || good.Token == "" {
		t.Errorf("a sidecar is told %+v", good)
	}
	for _, change := range []func(*sidecar.Options){
		func(o *sidecar.Options) { o.Token = "" },
		func(o *sidecar.Options) { o.Token += "x" },
		func(o *sidecar.Options) { o.Request = "other" },
		func(o *sidecar.Options) { o.Request = "../" + filepath.Base(r.dir) + "/requests/" + o.Request },
		func(o *sidecar.Options) { o.Direction = sidecar.Checkpoint },
	} {
		bad := good
		change(&bad)
		if err := r.Sidecar(bad, nil); !errors.Is(err, requests.ErrUnknown) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	r.Life.End(errkind.ErrStopping)
	if err := r.Sidecar(good, nil); !errors.Is(err, errkind.ErrStopping) {
		t.Errorf("while the agent stops: %v", err)
	}
	if len(r.Journal.Records()) > 0 {
		t.Error("a request was journaled")
	}
}

// TestWorkloadOfTheNextAgent: the next agent takes a save that an earlier agent has prepared.
func TestWorkloadOfTheNextAgent(t *testing.T) {
	r := newRig(t)
	dir, err := r.PrepareWorkload(sandboxID, snapshot.WholePod)
	if err != nil {
		t.Fatal(err)
	}
	r.next()
	if err := r.beginIn(dir); err != nil {
		t.Error(err)
	}
	r.isSound()
	if n := len(r.Journal.Records()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestWanted: the directory of a request stays while its sandbox may save itself, and while containerd does not answer.
func TestWanted(t *testing.T) {
	r := newRig(t)
	dir, err := r.PrepareWorkload(sandboxID, snapshot.WholePod)
	if err != nil {
		t.Fatal(err)
	}
	request := filepath.Base(dir)
	if !r.Wanted(t.Context(), request) || r.Wanted(t.Context(), "other") || r.Wanted(t.Context(), "../x") {
		t.Error("wanted: the wrong ones")
	}
	r.runtime.set(1, fault{})
	if !r.Wanted(t.Context(), request) {
		t.Error("not wanted while containerd does not answer")
	}
	r.sandbox.set(gone, "")
	if r.runtime.lift(); r.Wanted(t.Context(), request) {
		t.Error("wanted after the sandbox is gone")
	}
}

// TestPrepareWorkloadFails: PrepareWorkload fails if the directory of the request cannot be made.
func TestPrepareWorkloadFails(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(r.dir+"/requests", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dir, err := r.PrepareWorkload(sandboxID, snapshot.WholePod); err == nil {
		t.Errorf("prepared %s", dir)
	}
}

// TestDescribe: a snapshot records what the cluster knows about its pod. The cluster may refuse a checkpoint.
func TestDescribe(t *testing.T) {
	d := Description{
		Cluster: "c", ServiceAccount: "sa", SpecHash: "hash", Group: map[string]string{"a": "b"},
		Scope: snapshot.RootfsOnly,
	}
	r, c := inCluster(t, d)
	found, err := r.Checkpoint(t.Context(), r.Life.Context(), Options{Target: sandboxID})
	if err != nil {
		t.Fatal(err)
	}
	origin := found.Manifest.Meta.Origin
	if origin.Cluster != "c" || origin.ServiceAccount != "sa" || origin.SpecHash != "hash" || origin.Group["a"] != "b" ||
		found.Manifest.Meta.Scope != snapshot.RootfsOnly || found.Manifest.Meta.Key.Name != "of-the-cluster" {
		t.Errorf("it says of itself %+v", found.Manifest.Meta)
	}
	if rec := r.Journal.Records()[0]; rec.Scope != snapshot.RootfsOnly {
		t.Errorf("the journal says %+v", rec)
	}
	for _, refusal := range []struct {
		d    Description
		err  error
		want error
	}{{Description{}, errkind.ErrClusterAway, errkind.ErrClusterAway}, {
		Description{Store: "tape:1"},
		nil,
		errkind.ErrInvalid,
	}} {
		c.description, c.err = refusal.d, refusal.err
		_, err := r.Checkpoint(t.Context(), r.Life.Context(), Options{Target: sandboxID, Name: "other"})
		if !errors.Is(err, refusal.want) || len(r.Journal.Records()) != 1 {
			t.Errorf("the error is %v, want %v", err, refusal.want)
		}
	}
}

// TestUnsavedPodIsGone: the cluster is told nothing about a pod that containerd no longer knows.
func TestUnsavedPodIsGone(t *testing.T) {
	r, c := inCluster(t, Description{})
	r.sandbox.set(gone, "")
	r.unsaved(sandboxID, cri.ErrNotFound)
	if len(c.unsaved) > 0 {
		t.Errorf("the cluster was told %v", c.unsaved)
	}
}

// TestEndingUnconfirmed: a pod that is being ended is saved and stopped even if the cluster does not confirm its
// snapshot in time. Its containers report the exit status of SIGTERM.
func TestEndingUnconfirmed(t *testing.T) {
	r, c := inCluster(t, Description{})
	c.unconfirmed = errkind.ErrNotConfirmed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := r.Checkpoint(ctx, ctx, Options{Target: sandboxID, Stop: true, Ending: true, NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := r.Journal.Records()[0]
	if !rec.Stopped || !r.sandbox.isKilled() || string(exitStatus(rec)) != "143" {
		t.Errorf("the journal says %+v", rec)
	}
	if b, err := os.ReadFile(filepath.Join(r.StoppedDir, sandboxID)); err != nil || string(b) != "143" {
		t.Errorf("the shim is told %q, %v", b, err)
	}
	r.isSound()
}

// TestEndingOutOfTime: if the time is over before a pod that is being ended is paused, it runs on.
func TestEndingOutOfTime(t *testing.T) {
	r, c := inCluster(t, Description{})
	c.unconfirmed = errkind.ErrNotConfirmed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Checkpoint(ctx, ctx, Options{Target: sandboxID, Stop: true, Ending: true, NoWait: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if now, _ := r.sandbox.now(); now != running {
		t.Errorf("the sandbox is %s", now)
	}
	r.isSound()
}

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"diapause.dev/agent/errkind"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// all returns all messages of a stream.
func all[E any](stream grpc.ServerStreamingClient[E], err error) (events []*E, _ error) {
	if err != nil {
		return nil, err
	}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// manifest returns the path of the manifest of the rig's snapshot.
func (r *rig) manifest() string { return filepath.Join(r.Stores.SpoolDir(), "n/snapshots/s/manifest") }

// TestListAndInspect: List returns the snapshots of a namespace, and Inspect returns what was saved with one.
func TestListAndInspect(t *testing.T) {
	r := newRig(t, nil)
	parent := snapshot.Key{Namespace: "n", Name: "before"}
	r.save(t, snapshot.Meta{
		Parent: &parent, Overflow: 5, Origin: snapshot.Origin{Pod: "p", Node: "node"},
		Timeline: []snapshot.Stage{{Name: "queue", Took: 1}},
		Pod:      snapshot.Pod{Containers: []snapshot.Container{{Name: "app", Config: []byte("{}")}}},
	})
	for namespace, want := range map[string]int{"": 1, "n": 1, "m": 0} {
		resp, err := r.agent.List(t.Context(), &localv1.ListRequest{Namespace: namespace})
		if err != nil || len(resp.Snapshots) != want || len(resp.Damaged)+len(resp.Unreachable) > 0 {
			t.Errorf("namespace %q: %+v, %v", namespace, resp, err)
		}
	}
	s, err := r.agent.Inspect(t.Context(), &localv1.InspectRequest{Namespace: "n", Snapshot: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Uid != "u" || s.Parent != "n/before" || s.OverflowBytes != 5 || s.OriginPod != "p" || s.OriginNode != "node" ||
		!s.OnNode || s.Replicated || s.Facts.RunscVersion != "test" || s.Timeline[0].Name != "queue" ||
		!slices.Equal(s.Containers, []string{"app"}) || len(s.Files) != 1 || s.Scope != "whole-pod" || s.Problem != "" {
		t.Errorf("it is told as %+v", s)
	}
}

// TestListIsNotStopped: List names a damaged snapshot and a store that cannot be reached, and returns the other
// snapshots.
func TestListIsNotStopped(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	put(t, r.Stores.Spool(), snapshot.Key{Namespace: "n", Name: "whole"}, snapshot.Meta{UID: "w"})
	if err := os.WriteFile(r.manifest(), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stores.At("dir:/dev/null/away"); err != nil {
		t.Fatal(err)
	}
	resp, err := r.agent.List(t.Context(), &localv1.ListRequest{})
	if err != nil || len(resp.Snapshots) != 1 || len(resp.Damaged) != 1 || len(resp.Unreachable) != 1 ||
		!strings.Contains(resp.Damaged[0], "n/s") || !strings.Contains(resp.Unreachable[0], "/dev/null/away") {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestRemove: a snapshot can be removed once.
func TestRemove(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	req := &localv1.RemoveRequest{Namespace: "n", Snapshot: "s"}
	if _, err := r.agent.Remove(t.Context(), req); err != nil {
		t.Error(err)
	}
	_, err := r.agent.Remove(t.Context(), req)
	wantCode(t, "remove once more", err, codes.NotFound)
}

// TestVerify: Verify reports each snapshot, with what is wrong with it.
func TestVerify(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	put(t, r.Stores.Spool(), snapshot.Key{Namespace: "n", Name: "whole"}, snapshot.Meta{UID: "w"})
	verify := func(req *localv1.VerifyRequest) (ok, bad []string) {
		t.Helper()
		events, err := all(r.agent.Verify(t.Context(), req))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch v := e.GetResult(); {
			case v == nil:
			case v.Ok:
				ok = append(ok, v.Namespace+"/"+v.Snapshot)
			case len(v.Problems) == 0:
				t.Errorf("it is not said what is wrong: %+v", v)
			default:
				bad = append(bad, v.Problems...)
			}
		}
		return ok, bad
	}
	if ok, bad := verify(&localv1.VerifyRequest{ReadData: true}); !slices.Equal(ok, []string{"n/s", "n/whole"}) ||
		len(bad) > 0 {
		t.Errorf("whole: %q, damaged: %q", ok, bad)
	}
	if ok, _ := verify(&localv1.VerifyRequest{Snapshot: "n/s"}); !slices.Equal(ok, []string{"n/s"}) {
		t.Errorf("one of them: %q", ok)
	}
	if err := os.WriteFile(r.manifest(), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, bad := verify(&localv1.VerifyRequest{}); !slices.Equal(ok, []string{"n/whole"}) || len(bad) != 1 {
		t.Errorf("whole: %q, damaged: %q", ok, bad)
	}
}

// TestSweepAndStat: Sweep and StatStore go over the spool and all stores. A dry run of a sweep deletes nothing.
func TestSweepAndStat(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	if err := os.Remove(r.manifest()); err != nil { // now nothing names its pack
		t.Fatal(err)
	}
	for _, c := range []struct {
		dry           bool
		before, after int64
	}{{true, 1, 1}, {false, 1, 0}} {
		if n := r.spoolPacks(t); n != c.before {
			t.Errorf("%d packs before", n)
		}
		events, err := all(r.agent.Sweep(t.Context(), &localv1.SweepRequest{DryRun: c.dry, Grace: durationpb.New(0)}))
		if err != nil {
			t.Fatal(err)
		}
		last := events[len(events)-1].GetResult()
		if last == nil || last.Packs != 1 || !slices.ContainsFunc(last.Objects, func(o string) bool {
			return strings.HasPrefix(o, r.Stores.Spool().Backend().Location()+" n/packs/")
		}) {
			t.Errorf("dry %v: %+v", c.dry, last)
		}
		if n := r.spoolPacks(t); n != c.after {
			t.Errorf("%d packs after, want %d", n, c.after)
		}
	}
}

// spoolPacks returns how many packs StatStore finds in the spool.
func (r *rig) spoolPacks(t *testing.T) (packs int64) {
	t.Helper()
	events, err := all(r.agent.StatStore(t.Context(), &localv1.StatStoreRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	stores := 0
	for _, e := range events {
		if s := e.GetResult(); s != nil {
			stores++
			if s.Spool {
				packs = s.Packs
			}
		}
	}
	if stores != 2 {
		t.Errorf("%d stores", stores)
	}
	return packs
}

// TestCodes: each error has a code that callers can act on.
func TestCodes(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	ctx := t.Context()
	for what, c := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"inspect what is not there": {func() error {
			_, err := r.agent.Inspect(ctx, &localv1.InspectRequest{Snapshot: "n/other"})
			return err
		}, codes.NotFound},
		"inspect what is no name": {func() error {
			_, err := r.agent.Inspect(ctx, &localv1.InspectRequest{Snapshot: "n/.."})
			return err
		}, codes.InvalidArgument},
		"remove what is no name": {func() error {
			_, err := r.agent.Remove(ctx, &localv1.RemoveRequest{Snapshot: "n/.."})
			return err
		}, codes.InvalidArgument},
		"verify what is not there": {func() error {
			_, err := all(r.agent.Verify(ctx, &localv1.VerifyRequest{Snapshot: "n/other"}))
			return err
		}, codes.NotFound},
		"verify no such part": {func() error {
			_, err := all(r.agent.Verify(ctx, &localv1.VerifyRequest{Part: 3, Parts: 2}))
			return err
		}, codes.InvalidArgument},
		"rotate keys that there are not": {func() error {
			_, err := all(r.agent.RotateKeys(ctx, &localv1.RotateKeysRequest{}))
			return err
		}, codes.FailedPrecondition},
		"check keys that there are not": {func() error {
			_, err := all(r.agent.CheckKeys(ctx, &localv1.RotateKeysRequest{}))
			return err
		}, codes.FailedPrecondition},
		"checkpoint what is not there":     {r.checkpoint(t, "none", ""), codes.NotFound},
		"checkpoint what is ambiguous":     {r.checkpoint(t, "many", ""), codes.InvalidArgument},
		"checkpoint what cannot be":        {r.checkpoint(t, "other", ""), codes.FailedPrecondition},
		"checkpoint what does not run":     {r.checkpoint(t, "ended", ""), codes.FailedPrecondition},
		"checkpoint under what is no name": {r.checkpoint(t, "ended", "../x"), codes.InvalidArgument},
		"restore from what is no name": {func() error {
			_, err := all(r.agent.Restore(ctx, &localv1.RestoreRequest{Snapshot: "n/..", Count: 1}))
			return err
		}, codes.InvalidArgument},
	} {
		wantCode(t, what, c.call(), c.want)
	}
}

// checkpoint returns a function that checkpoints a pod.
func (r *rig) checkpoint(t *testing.T, target, name string) func() error {
	return func() error {
		_, err := all(r.agent.Checkpoint(t.Context(), &localv1.CheckpointRequest{Target: target, Name: name}))
		return err
	}
}

// TestStatus: each thing that the agent needs has its own check. If one fails, the others do not.
func TestStatus(t *testing.T) {
	r := newRig(t, nil)
	wants := map[string]bool{
		"containerd": true, "runsc": true, "sidecar": false, "store": true, "replication": true, "spool": true,
		"network": true, "kernel": true, "sleeping pods": true,
	}
	for _, away := range []bool{false, true} {
		r.criAway = away
		wants["containerd"] = !away
		resp, err := r.agent.Status(t.Context(), &localv1.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Version != "v" || resp.Node != "node" || resp.Facts.RunscVersion != "test" {
			t.Errorf("%+v", resp)
		}
		checks := make(map[string]bool)
		for _, c := range resp.Checks {
			checks[c.Name] = c.Ok
			if c.Detail == "" {
				t.Errorf("%s has no detail", c.Name)
			}
		}
		for name, want := range wants {
			if ok, there := checks[name]; name != "spool" && ok != want || !there {
				t.Errorf("containerd away %v: %s is ok: %v", away, name, ok)
			}
		}
	}
}

// TestStatusOfStores: doctor notices that a store is no longer there which is open. The readiness probe does not ask
// it, and does not depend on the stores of namespaces, which doctor names.
func TestStatusOfStores(t *testing.T) {
	r := newRig(t, nil)
	failed := func(probe bool) (names []string) {
		t.Helper()
		resp, err := r.agent.Status(t.Context(), &localv1.StatusRequest{Probe: probe})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range resp.Checks {
			if strings.HasPrefix(c.Name, "store") && !c.Ok {
				names = append(names, c.Detail)
			}
		}
		return names
	}
	if got := slices.Concat(failed(false), failed(true)); len(got) > 0 {
		t.Errorf("at first: %q", got)
	}
	missing := "dir:" + t.TempDir()
	if _, err := r.Stores.Get(t.Context(), missing); err == nil {
		t.Error("there is a store where none was made")
	}
	if err := os.RemoveAll(strings.TrimPrefix(r.Config.Store, "dir:")); err != nil {
		t.Fatal(err)
	}
	if got := failed(false); len(got) != 2 || !strings.Contains(got[0], "not the store that was expected") ||
		!strings.Contains(got[1], missing) {
		t.Errorf("doctor: %q", got)
	}
	if got := failed(true); len(got) > 0 {
		t.Errorf("the probe: %q", got)
	}
}

// TestStatusNotSwept: what is not swept is said, and does not make the agent unready.
func TestStatusNotSwept(t *testing.T) {
	cluster := &fakeCluster{}
	r := newRig(t, cluster)
	for _, why := range []string{"", "brought back from a backup"} {
		cluster.notSwept = why
		resp, err := r.agent.Status(t.Context(), &localv1.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(resp.Checks, func(c *localv1.Check) bool { return c.Name == "sweep" })
		if i < 0 || !resp.Checks[i].Ok || !strings.Contains(resp.Checks[i].Detail, why) {
			t.Errorf("%q: %v", why, resp.Checks)
		}
	}
}

// TestStatusContainerdVersion: the check of containerd fails for a version that is not supported, or outdated, and says
// what to install. If a distribution may have repaired it, the check says so.
func TestStatusContainerdVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"containerd v1.7.35": false, "containerd v2.1.8": false, "containerd 2.1.8-0ubuntu1": true,
	} {
		r := newRig(t, nil)
		r.version = version
		resp, err := r.agent.Status(t.Context(), &localv1.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(resp.Checks, func(c *localv1.Check) bool { return c.Name == "containerd" })
		if i < 0 {
			t.Fatalf("no check of containerd: %v", resp.Checks)
		}
		c := resp.Checks[i]
		if c.Ok != ok || !strings.Contains(c.Detail, version) || !strings.Contains(c.Detail, "upgrade containerd to 2.1.9") {
			t.Errorf("%v", c)
		}
	}
}

// TestTop: Top returns only running sandboxes of our runtime, with what is being done to each.
func TestTop(t *testing.T) {
	r := newRig(t, nil)
	for _, want := range []string{"", "checkpoint"} {
		resp, err := r.agent.Top(t.Context(), &localv1.TopRequest{})
		if err != nil || len(resp.Sandboxes) != 1 || resp.Sandboxes[0].Id != "sandbox" || resp.Sandboxes[0].Request != want {
			t.Errorf("%+v, %v", resp, err)
		}
		if unlock := r.Sandboxes.TryLock("sandbox"); unlock != nil {
			defer unlock()
		}
	}
	r.criAway = true
	_, err := r.agent.Top(t.Context(), &localv1.TopRequest{})
	wantCode(t, "containerd is away", err, codes.DeadlineExceeded)
}

// TestNotConfirmed: a checkpoint on a node of a cluster fails if its snapshot is not confirmed.
func TestNotConfirmed(t *testing.T) {
	why := fmt.Errorf("%w: its pod was on another node", errkind.ErrNotConfirmed)
	m := snapshot.Meta{Key: snapshot.Key{Namespace: "ns", Name: "s"}}
	alone := &service{}
	if err := alone.confirmed(t.Context(), m); err != nil {
		t.Errorf("without a cluster: %v", err)
	}
	for _, want := range []error{nil, why} {
		s := &service{Config: Config{Cluster: &fakeCluster{unconfirmed: want}}}
		if err := s.confirmed(t.Context(), m); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

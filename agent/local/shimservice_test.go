package local

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

const (
	start   = localv1.AskRestoreResponse_START
	resumes = localv1.AskRestoreResponse_RESTORE
	rootfs  = localv1.AskRestoreResponse_RESTORE_ROOTFS
	fails   = localv1.AskRestoreResponse_FAIL
	waits   = localv1.AskRestoreResponse_WAIT
)

// annotated returns the annotations of pod n/p and others, given as keys and values in turn.
func annotated(others ...string) map[string]string {
	all := map[string]string{annotationSandboxNamespace: "n", annotationSandboxName: "p", annotationSandboxUID: "pod-uid"}
	for i := 0; i < len(others); i += 2 {
		all[others[i]] = others[i+1]
	}
	return all
}

// ask asks as a shim does, until there is a decision.
func (r *rig) ask(t *testing.T, req *localv1.AskRestoreRequest) *localv1.AskRestoreResponse {
	t.Helper()
	req.SandboxId = "sandbox"
	for {
		resp, err := r.shim.AskRestore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Decision != waits {
			return resp
		}
	}
}

// left returns the directories of requests.
func (r *rig) left(t *testing.T) []string {
	t.Helper()
	all, err := r.requests.All()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// TestAskRestoreByAnnotation: without a cluster, the pod's annotations say what it is restored from, and what happens
// if it cannot be restored.
func TestAskRestoreByAnnotation(t *testing.T) {
	from, onFailure := podsnapshotv1.AnnotationRestoreFrom, podsnapshotv1.AnnotationOnRestoreFailure
	for name, c := range map[string]struct {
		annotations map[string]string
		limit       int64
		want        localv1.AskRestoreResponse_Decision
		reason      string
	}{
		"none":               {annotated(), 0, start, ""},
		"only the policy":    {annotated(onFailure, podsnapshotv1.OnRestoreFailureFail), 0, start, ""},
		"a snapshot":         {annotated(from, "s"), 0, resumes, ""},
		"with its namespace": {annotated(from, "n/s"), 0, resumes, ""},
		"of another":         {annotated(from, "m/s"), 0, start, "may not be restored"},
		"no name":            {annotated(from, "../s"), 0, start, errkind.ErrInvalid.Error()},
		"unknown":            {annotated(from, "other"), 0, start, "not found"},
		"unknown, and strict": {
			annotated(from, "other", onFailure, podsnapshotv1.OnRestoreFailureFail), 0, fails, "not found",
		},
		"unknown, and lax": {annotated(from, "other", onFailure, "ColdStart"), 0, start, "not found"},
		"unknown, and an unknown value": {
			annotated(from, "other", onFailure, "fail"), 0, fails,
			`; annotation diapause.dev/on-restore-failure is "fail", which counts as Fail: its values are Fail and ColdStart`,
		},
		"an unknown value": {annotated(from, "s", onFailure, "fail"), 0, resumes, ""},
		"too large":        {annotated(from, "s"), 1 << 20, start, errkind.ErrMemoryLimit.Error()},
		"large enough":     {annotated(from, "s"), 1 << 30, resumes, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.save(t, snapshot.Meta{Memory: 64 << 20})
			resp := r.ask(t, &localv1.AskRestoreRequest{Annotations: c.annotations, MemoryLimit: c.limit})
			if resp.Decision != c.want || !strings.Contains(resp.Reason, c.reason) || (c.reason == "") != (resp.Reason == "") {
				t.Errorf("decided %v: %q, want %v: %q", resp.Decision, resp.Reason, c.want, c.reason)
			}
			restores := c.want == resumes
			if restores && (resp.Snapshot != saved.String() || resp.ImagePath != r.requests.Path(resp.Request)) {
				t.Errorf("restored by %+v", resp)
			}
			if n := len(r.left(t)); restores != (n == 1) {
				t.Errorf("%d request directories", n)
			}
			if (r.metrics.count() == 1) != (c.reason != "") {
				t.Errorf("%d refusals", r.metrics.count())
			}
		})
	}
}

// TestAskRestoreInACluster: the cluster decides, whatever the pod says. It hears of restores that are refused. The pod
// may be stricter than the cluster.
func TestAskRestoreInACluster(t *testing.T) {
	strict := annotated(podsnapshotv1.AnnotationOnRestoreFailure, podsnapshotv1.OnRestoreFailureFail)
	unknown := snapshot.Key{Namespace: "n", Name: "other"}
	for name, c := range map[string]struct {
		choice      restore.Choice
		err         error
		annotations map[string]string
		want        localv1.AskRestoreResponse_Decision
		told        error
	}{
		"starts":               {restore.Choice{}, nil, annotated(podsnapshotv1.AnnotationRestoreFrom, "s"), start, nil},
		"restores":             {restore.Choice{Snapshot: saved, UID: "u"}, nil, annotated(), resumes, nil},
		"replaced":             {restore.Choice{Snapshot: saved, UID: "v"}, nil, annotated(), start, errkind.ErrReplaced},
		"strict cluster":       {restore.Choice{Snapshot: unknown, Fail: true}, nil, annotated(), fails, storage.ErrNotFound},
		"strict pod":           {restore.Choice{Snapshot: unknown}, nil, strict, fails, storage.ErrNotFound},
		"refuses":              {restore.Choice{Snapshot: saved}, errAway, annotated(), start, errkind.ErrClusterAway},
		"refuses strictly":     {restore.Choice{Fail: true}, errAway, annotated(), fails, errkind.ErrClusterAway},
		"refuses a strict pod": {restore.Choice{}, errAway, strict, fails, errkind.ErrClusterAway},
		"refuses a pod with an unknown value": {
			restore.Choice{},
			errAway, annotated(podsnapshotv1.AnnotationOnRestoreFailure, "fail"), fails,
			errkind.ErrClusterAway,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &fakeCluster{choice: c.choice, err: c.err}
			r := newRig(t, cluster)
			r.save(t, snapshot.Meta{})
			resp := r.ask(t, &localv1.AskRestoreRequest{Annotations: c.annotations})
			if resp.Decision != c.want {
				t.Errorf("decided %v: %q, want %v", resp.Decision, resp.Reason, c.want)
			}
			r.Life.End(errkind.ErrStopping) // after that nothing holds the snapshot
			r.Life.Wait()
			told := cluster.failures()
			if c.told == nil && len(told) > 0 || c.told != nil && (len(told) != 1 || !errors.Is(told[0], c.told)) {
				t.Errorf("the cluster was told %v, want %v", told, c.told)
			}
			if c.told != nil && (resp.Reason != told[0].Error() || r.metrics.count() != 1) {
				t.Errorf("the shim was told %q, and %d refusals were counted", resp.Reason, r.metrics.count())
			}
		})
	}
}

// TestAskRestoreAnswers: the answer tells the shim everything that it needs to know about the snapshot.
func TestAskRestoreAnswers(t *testing.T) {
	for _, c := range []struct {
		scope      snapshot.Scope
		choice     restore.Choice
		want       localv1.AskRestoreResponse_Decision
		ended      []string
		codes      map[string]int32
		containers int32
	}{
		{
			snapshot.WholePod,
			restore.Choice{Init: []string{"setup"}, Containers: 3},
			resumes,
			[]string{"setup", "job"},
			map[string]int32{"job": 7},
			2,
		},
		{snapshot.RootfsOnly, restore.Choice{Init: []string{"setup"}, Containers: 3}, rootfs, nil, nil, 3},
		{snapshot.RootfsOnly, restore.Choice{Fail: true}, rootfs, nil, nil, 2},
	} {
		c.choice.Snapshot = saved
		r := newRig(t, &fakeCluster{choice: c.choice})
		r.save(t, snapshot.Meta{Scope: c.scope, Pod: snapshot.Pod{
			Containers: []snapshot.Container{
				{Name: "a", Config: []byte("{}"), Terminal: &snapshot.Terminal{Rows: 24, Columns: 80}},
				{Name: "b", Config: []byte("{}")},
			},
			Ended: []snapshot.EndedContainer{{Container: snapshot.Container{Name: "job", Config: []byte("{}")}, ExitCode: 7}},
		}})
		got := r.ask(t, &localv1.AskRestoreRequest{Annotations: annotated()})
		if got.Decision != c.want || got.Containers != c.containers || got.Strict != c.choice.Fail ||
			!slices.Equal(got.EndedContainers, c.ended) || !maps.Equal(got.ExitCodes, c.codes) {
			t.Errorf("%s: %+v", c.scope, got)
		}
		if a := got.Terminals["a"]; a == nil || a.Rows != 24 || a.Columns != 80 || got.Terminals["b"] != nil {
			t.Errorf("%s: terminals %v", c.scope, got.Terminals)
		}
	}
}

// TestAskRestoreOnce: however often a shim asks, its sandbox is prepared once.
func TestAskRestoreOnce(t *testing.T) {
	cluster := &fakeCluster{choice: restore.Choice{Snapshot: saved}, slow: make(chan struct{})}
	r := newRig(t, cluster)
	r.save(t, snapshot.Meta{})
	req := &localv1.AskRestoreRequest{SandboxId: "sandbox", Annotations: annotated()}
	for range 2 {
		if resp, err := r.shim.AskRestore(t.Context(), req); err != nil || resp.Decision != waits {
			t.Errorf("while the cluster thinks: %v, %v", resp, err)
		}
	}
	close(cluster.slow)
	if resp := r.ask(t, req); resp.Decision != resumes || len(r.left(t)) != 1 {
		t.Errorf("decided %v, %d directories", resp.Decision, len(r.left(t)))
	}
}

// TestGivenUpMeanwhile: if the shim gives up a restore before it is prepared, the restore is released once it is
// prepared.
func TestGivenUpMeanwhile(t *testing.T) {
	cluster := &fakeCluster{choice: restore.Choice{Snapshot: saved}, slow: make(chan struct{})}
	r := newRig(t, cluster)
	r.save(t, snapshot.Meta{})
	req := &localv1.AskRestoreRequest{SandboxId: "sandbox", Annotations: annotated()}
	if resp, err := r.shim.AskRestore(t.Context(), req); err != nil || resp.Decision != waits {
		t.Fatalf("%v, %v", resp, err)
	}
	giveUp := &localv1.ReportRestoreRequest{SandboxId: "sandbox", GivenUp: true, Error: "no time"}
	if _, err := r.shim.ReportRestore(t.Context(), giveUp); err != nil {
		t.Error(err)
	}
	close(cluster.slow)
	r.Life.Wait()
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	all := snapshots.Removal{ID: snapshots.ID{Key: saved}, From: snapshots.FromEverywhere}
	if err := r.Catalog.Remove(t.Context(), all); err != nil { // it fails while a restore reads the snapshot
		t.Error(err)
	}
}

// TestGivenUpAfterwards: if the shim gives up a restore that is ready, the restore is released.
func TestGivenUpAfterwards(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	r.ask(t, &localv1.AskRestoreRequest{Annotations: annotated(podsnapshotv1.AnnotationRestoreFrom, "s")})
	_, err := r.agent.Remove(t.Context(), &localv1.RemoveRequest{Namespace: "n", Snapshot: "s"})
	wantCode(t, "remove while it is being restored", err, codes.FailedPrecondition)
	for _, sandbox := range []string{"other", "sandbox"} {
		if len(r.left(t)) != 1 {
			t.Errorf("before %s gave up: %q", sandbox, r.left(t))
		}
		_, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{SandboxId: sandbox, GivenUp: true})
		if err != nil {
			t.Error(err)
		}
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestReportRestoreFailed: a restore that fails in the shim ends, and the cluster hears why.
func TestReportRestoreFailed(t *testing.T) {
	cluster := &fakeCluster{choice: restore.Choice{Snapshot: saved}}
	r := newRig(t, cluster)
	r.save(t, snapshot.Meta{})
	resp := r.ask(t, &localv1.AskRestoreRequest{Annotations: annotated()})
	_, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{
		Request: resp.Request, SandboxId: "sandbox", Snapshot: "s", Error: "runsc failed", Annotations: annotated(),
	})
	if err != nil {
		t.Error(err)
	}
	r.Life.Wait()
	if told := cluster.failures(); len(told) != 1 || told[0].Error() != "runsc failed" || len(cluster.restored) > 0 {
		t.Errorf("the cluster was told %v and %v", told, cluster.restored)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestReportRestoreComplete: the cluster hears of a restored pod. If the cluster cannot be told, the report fails, and
// the shim reports again.
func TestReportRestoreComplete(t *testing.T) {
	cluster := &fakeCluster{restoredErr: errAway}
	r := newRig(t, cluster)
	req := &localv1.ReportRestoreRequest{SandboxId: "sandbox", Snapshot: "s", Complete: true, Annotations: annotated()}
	_, err := r.shim.ReportRestore(t.Context(), req)
	wantCode(t, "while the cluster does not answer", err, codes.Aborted)
	cluster.restoredErr = nil
	if _, err := r.shim.ReportRestore(t.Context(), req); err != nil {
		t.Error(err)
	}
	if !slices.Equal(cluster.restored, []snapshot.Key{saved, saved}) || len(cluster.failures()) > 0 {
		t.Errorf("the cluster was told %v and %v", cluster.restored, cluster.failures())
	}
	if _, err := newRig(t, nil).shim.ReportRestore(t.Context(), req); err != nil {
		t.Errorf("without a cluster: %v", err)
	}
}

// TestReportRestoreLoaded: the shim may report more than once that everything is loaded. If the agent does not know the
// request, the report fails.
func TestReportRestoreLoaded(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{})
	resp := r.ask(t, &localv1.AskRestoreRequest{Annotations: annotated(podsnapshotv1.AnnotationRestoreFrom, "s")})
	for range 2 {
		_, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{Request: resp.Request, Loaded: true})
		if err != nil {
			t.Error(err)
		}
	}
	_, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{Request: "../x", Loaded: true})
	if err == nil {
		t.Error("a request that nobody knows")
	}
}

// TestPrepareWorkload: the shim gets the directory of a request, into which the sandbox can be saved.
func TestPrepareWorkload(t *testing.T) {
	r := newRig(t, nil)
	for _, rootfsOnly := range []bool{false, true} {
		resp, err := r.shim.PrepareWorkload(t.Context(), &localv1.PrepareWorkloadRequest{
			SandboxId: "sandbox", RootfsOnly: rootfsOnly,
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(resp.ImagePath, "gcs_opts.json"))
		if err != nil || strings.Contains(string(b), "rootfs-workload") != rootfsOnly {
			t.Errorf("%s, %v", b, err)
		}
	}
}

// TestReadVolumeUnknown: ReadVolume fails if the agent does not know the request.
func TestReadVolumeUnknown(t *testing.T) {
	stream, err := newRig(t, nil).shim.ReadVolume(t.Context(), &localv1.ReadVolumeRequest{Request: "r", Volume: "v"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("no error")
	}
}

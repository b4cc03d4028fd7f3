package local

import (
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/restore"
	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// askFor asks about a sandbox of pod n/p, which containerd then knows as one in which containers have started.
func (r *rig) askFor(t *testing.T, sandbox string, annotations map[string]string) localv1.AskRestoreResponse_Decision {
	t.Helper()
	for {
		resp, err := r.shim.AskRestore(t.Context(), &localv1.AskRestoreRequest{SandboxId: sandbox, Annotations: annotations})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Decision != waits {
			r.ran = sandbox
			return resp.Decision
		}
	}
}

// TestAskRestoreOfLost: a snapshot restores a pod until the pod has run, in a cluster and without one. Then its
// sandboxes start as Kubernetes starts them, also if containerd has forgotten the earlier ones. If Diapause itself has
// ended the sandbox after a checkpoint, the next one is restored from that snapshot.
func TestAskRestoreOfLost(t *testing.T) {
	for name, cluster := range map[string]Cluster{
		"in a cluster": &fakeCluster{choice: restore.Choice{Snapshot: saved}}, "without a cluster": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cluster)
			r.save(t, snapshot.Meta{})
			named := annotated(podsnapshotv1.AnnotationRestoreFrom, "n/s")
			want := func(what, sandbox string, want localv1.AskRestoreResponse_Decision) {
				t.Helper()
				if got := r.askFor(t, sandbox, named); got != want {
					t.Fatalf("%s: decided %v, want %v", what, got, want)
				}
			}
			want("a new pod", "s0", resumes)
			if _, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{
				SandboxId: "s0", Annotations: named, Error: "no luck",
			}); err != nil {
				t.Fatal(err)
			}
			want("after a restore that has failed", "s1", resumes)
			if _, err := r.shim.ReportRestore(t.Context(), &localv1.ReportRestoreRequest{
				SandboxId: "s1", Annotations: named, Complete: true,
			}); err != nil {
				t.Fatal(err)
			}
			want("after a restore", "s2", start)
			r.ran = ""
			want("after a cold start that containerd has forgotten", "s3", start)

			stopped := journaltest.Record(1, journal.StageReplicated)
			stopped.SandboxID, stopped.Stop, stopped.Stopped, stopped.Key, stopped.UID = "s3", true, true, saved, "u"
			journaltest.Put(t, r.journal, stopped)
			want("after Diapause has ended it", "s4", resumes)
			r.criAway = true
			if got := r.askFor(t, "s5", named); got != fails {
				t.Errorf("not known whether it has run: decided %v, want %v", got, fails)
			}
		})
	}
}

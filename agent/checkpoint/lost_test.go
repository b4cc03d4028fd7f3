package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// lost returns a rig whose next agent cannot read the record of the request that has paused the sandbox.
func lost(t *testing.T, sandbox string) *rig {
	t.Helper()
	r := newRig(t)
	sandboxes[sandbox](r.sandbox)
	if err := os.WriteFile(filepath.Join(r.journalDir(), requestID+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.next()
	return r
}

// TestRecoverUnreadableRecord: if the record of a request is lost, the sandbox that the request has paused runs on and
// is never ended. No other sandbox is touched.
func TestRecoverUnreadableRecord(t *testing.T) {
	for sandbox, want := range map[string]state{
		"paused": running, "paused without a lease": running, "runs": running, "runs without leases": running,
		"ran out": running, "exited": exited, "gone": gone, "paused by another": paused,
	} {
		t.Run(sandbox, func(t *testing.T) {
			r := lost(t, sandbox)
			r.Recover(t.Context())
			if now, _ := r.sandbox.now(); now != want || r.sandbox.isKilled() {
				t.Errorf("the sandbox is %s, want %s", now, want)
			}
			if len(r.told) > 0 || len(r.Unsettled.List()) > 0 {
				t.Errorf("the cluster was told %v", r.told)
			}
		})
	}
}

// TestRecoverUnreadableRecordOfAnotherRuntime: the agent has not paused a pod that it cannot checkpoint, and so does
// not resume it.
func TestRecoverUnreadableRecordOfAnotherRuntime(t *testing.T) {
	r := lost(t, "paused without a lease")
	r.sandbox.other = true
	r.Recover(t.Context())
	if now, _ := r.sandbox.now(); now != paused {
		t.Errorf("the sandbox is %s", now)
	}
}

// TestRecoverUnreadableRecordFaults: whichever call of containerd fails, the agent goes on and does not end the
// sandbox. If the pause has a lease, that ends the pause.
func TestRecoverUnreadableRecordFaults(t *testing.T) {
	for _, sandbox := range []string{"paused", "paused without a lease"} {
		for n := 1; ; n++ {
			r := lost(t, sandbox)
			r.runtime.set(n, fault{})
			r.Recover(t.Context())
			if r.sandbox.isKilled() {
				t.Errorf("%s: ended", sandbox)
			}
			if !r.runtime.hit(n) {
				break
			}
		}
	}
}

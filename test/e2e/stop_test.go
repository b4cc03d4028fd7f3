package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// stoppingPolicy ends pods after their checkpoint.
const stoppingPolicy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: stopping, namespace: %s}
spec:
  storageConfigName: storage
  selector: {matchLabels: {app: stopping}}
  triggerConfig: {type: manual, postCheckpoint: stop}
`

// TestStopFails keeps an agent from stopping a pod after its checkpoint: the directory in which it notes that is a
// file. The trigger fails, and it and an event name the snapshot, which can be restored; the pod runs on.
func TestStopFails(t *testing.T) {
	w := begin(t)
	w.apply(fmt.Sprintf(stoppingPolicy, w.namespace))
	n := w.Nodes()[0]
	stopping := func(p *corev1.Pod) { p.Labels["app"] = "stopping" }
	p := w.run(w.pod("web", on(n), stopping))
	before := w.life(p)
	dir := n.Path("/run/diapause/stopped")
	w.must(os.Rename(dir, dir+".away"))
	putBack := func() error { return errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)) }
	w.must(os.WriteFile(dir, nil, 0o600))
	_, err := w.outcome(w.ctx, w.trigger("stops", "web"), func() {})
	w.must(putBack())

	const why = " was made, but the pod was not stopped and runs on: "
	if !errors.Is(err, errFailed) || !strings.Contains(err.Error(), why) {
		t.Fatalf("the trigger's answer is %v, want one that has %q", err, why)
	}
	w.moves(p)
	all := w.snapshots()
	if len(all) != 1 || !strings.Contains(err.Error(), all[0].Name) {
		t.Fatalf("snapshots %+v; the trigger's answer is %v", all, err)
	}
	w.eventually("an event says so", func() error { return w.event("web", warning(why)) })
	w.remove("web")
	w.restored(w.run(w.pod("web", stopping, from(all[0].Name))), all[0].Name, before)
}

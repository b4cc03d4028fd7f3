package e2e

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// goldenPolicy makes one group of all pods that bear the label golden, and keeps so many of its snapshots.
const goldenPolicy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: golden, namespace: %s}
spec:
  storageConfigName: storage
  selector: {matchLabels: {app: golden}}
  triggerConfig: {type: manual, postCheckpoint: resume}
  snapshotGroupingRules: {groupByLabelValue: {labels: [golden], groupRetentionPolicy: {maxSnapshotCountPerGroup: %d}}}
`

// TestGolden freezes the first pod of a Deployment, and starts eight more from it at once, on both
// nodes.
func TestGolden(t *testing.T) {
	t.Parallel()
	const more = 8
	w := begin(t)
	w.apply(fmt.Sprintf(goldenPolicy, w.namespace, 2))
	template := w.pod("golden")
	labels := map[string]string{"app": "golden", "golden": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "golden"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: d.Spec.Selector,
	}}
	w.must(w.client.Create(w.ctx, d))
	first := w.replicas(1, labels)[0]
	before := w.life(first)
	w.write(first.Name, "/tmp/mark", "golden")
	s := w.checkpoint(first)

	began := time.Now()
	w.kubectl("scale", "deployment/golden", fmt.Sprintf("--replicas=%d", 1+more))
	all := w.replicas(1+more, labels)
	t.Logf("%d pods from one snapshot in %v", more, time.Since(began))
	nodes := make(map[string]int)
	for _, p := range all {
		if p.Name == first.Name {
			continue
		}
		nodes[p.Spec.NodeName]++
		w.restored(p, s.name, before)
		w.reads(p.Name, "/tmp/mark", "golden")
	}
	if len(nodes) != len(w.Nodes()) {
		t.Errorf("pods by node: %v", nodes)
	}
	w.must(w.client.Delete(w.ctx, d))
}

// replicas waits until so many pods with these labels are Ready.
func (w *world) replicas(n int, labels map[string]string) (all []*ready) {
	w.Helper()
	w.eventually("pods of the Deployment", func() error {
		var l corev1.PodList
		if err := w.client.List(w.ctx, &l, client.InNamespace(w.namespace), client.MatchingLabels(labels)); err != nil {
			return err
		}
		all = all[:0]
		for i := range l.Items {
			if condition(&l.Items[i], corev1.PodReady).Status == corev1.ConditionTrue {
				all = append(all, &ready{Pod: &l.Items[i]})
			}
		}
		if len(all) != n {
			return fmt.Errorf("%d are Ready, want %d", len(all), n)
		}
		return nil
	})
	return all
}

package rules_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

const hashLabel = podsnapshotv1.LabelSandboxNameHash

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// facts are the facts of the node in these tests.
var facts = snapshot.Facts{Architecture: "amd64", RunscVersion: "r1"}

// pod returns a running pod that policy("p") selects.
func pod(edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "u",
			Labels: map[string]string{"app": "web", hashLabel: "aaaa"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}, ServiceAccountName: "sa"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

// policy returns a policy that selects the pods of one application and groups by Sandbox.
func policy(name string, edit ...func(*podsnapshotv1.PodSnapshotPolicy)) podsnapshotv1.PodSnapshotPolicy {
	p := podsnapshotv1.PodSnapshotPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: podsnapshotv1.PodSnapshotPolicySpec{
			StorageConfigName: "store",
			Selector:          metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			TriggerConfig:     podsnapshotv1.TriggerConfig{Type: podsnapshotv1.TriggerManual},
			SnapshotGroupingRules: &podsnapshotv1.SnapshotGroupingRules{
				GroupByLabelValue: podsnapshotv1.GroupByLabelValue{Labels: []string{hashLabel}},
			},
		},
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func ungrouped(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.SnapshotGroupingRules = nil }

// ready returns a snapshot of pod() under policy("p"), created this many seconds after epoch.
func ready(name string, seconds int, edit ...func(*podsnapshotv1.PodSnapshot)) podsnapshotv1.PodSnapshot {
	spec := podspec.Distil(pod())
	s := podsnapshotv1.PodSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second)),
			Labels: map[string]string{hashLabel: "aaaa"},
			Annotations: map[string]string{
				podsnapshotv1.AnnotationServiceAccount: "sa", podsnapshotv1.AnnotationSpecHash: spec.Hash(),
				podsnapshotv1.AnnotationDistilledSpec: string(spec.Encode()),
				podsnapshotv1.AnnotationConfirmed:     podsnapshotv1.Confirmed,
				podsnapshotv1.AnnotationRunscVersion:  "r1", podsnapshotv1.AnnotationArchitecture: "amd64",
			},
		},
		Spec: podsnapshotv1.PodSnapshotSpec{PolicyName: "p"},
	}
	rules.SetProgress(&s, rules.Progress{Spooled: true, Replicated: true, StoredAt: "gs://b/p"})
	for _, e := range edit {
		e(&s)
	}
	return s
}

func annotate(key, value string) func(*podsnapshotv1.PodSnapshot) {
	return func(s *podsnapshotv1.PodSnapshot) { s.Annotations[key] = value }
}

func find(name string) (*podsnapshotv1.PodSnapshotStorageConfig, bool) {
	c := &podsnapshotv1.PodSnapshotStorageConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	switch name {
	case "store":
		c.Spec.SnapshotStorageConfig.GCS = &podsnapshotv1.GCSStorage{Bucket: "b", Path: "p/"}
	case "dir":
		c.Spec.SnapshotStorageConfig.Dir = &podsnapshotv1.DirStorage{Path: "/srv"}
	case "empty":
	default:
		return nil, false
	}
	return c, true
}

func TestPrepare(t *testing.T) {
	plan, err := rules.Prepare(pod(), []podsnapshotv1.PodSnapshotPolicy{policy("p")}, find)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Policy != "p" || plan.Store != "gs://b/p" || plan.StorageConfig != "store" ||
		plan.Group[hashLabel] != "aaaa" ||
		plan.ServiceAccount != "sa" || plan.SpecHash != podspec.Distil(pod()).Hash() || plan.Spec == "" || plan.Stop {
		t.Errorf("plan %+v", plan)
	}
	stop := policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.TriggerConfig.PostCheckpoint, p.Spec.StorageConfigName = podsnapshotv1.PostCheckpointStop, "dir"
	})
	if plan, err = rules.Prepare(pod(), []podsnapshotv1.PodSnapshotPolicy{stop}, find); err != nil || !plan.Stop ||
		plan.Store != "dir:/srv" {
		t.Errorf("plan %+v, %v", plan, err)
	}
}

// debugging gives a pod two debug containers, of which one has ended.
func debugging(p *corev1.Pod) {
	for _, name := range []string{"over", "dbg"} {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name},
		})
	}
	p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
		Name: "over", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}}
}

// TestDebugged: a pod with a debug container is not saved at its end, nor by itself. The snapshot of its sleep
// serves no successor.
func TestDebugged(t *testing.T) {
	heir := func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Annotations = map[string]string{
			podsnapshotv1.AnnotationOnTermination: podsnapshotv1.OnTerminationCheckpoint,
		}
	}
	saves := []podsnapshotv1.PodSnapshotPolicy{policy("p", heir)}
	if _, err := rules.PrepareTermination(pod(debugging), saves, find); !rules.Refused(err) {
		t.Errorf("at its end: %v", err)
	}
	itself := []podsnapshotv1.PodSnapshotPolicy{policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.TriggerConfig.Type = podsnapshotv1.TriggerWorkload
	})}
	if _, err := rules.PrepareWorkload(pod(debugging), itself, find); !rules.Refused(err) {
		t.Errorf("by itself: %v", err)
	}
	for _, x := range []struct {
		pod  *corev1.Pod
		want bool
	}{{pod(), true}, {pod(debugging), false}} {
		if plan := rules.PrepareLocal(x.pod, saves, find); plan.Policy != "p" || plan.Inheritable != x.want {
			t.Errorf("asleep: %+v, want inheritable %v", plan, x.want)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	type policies = []podsnapshotv1.PodSnapshotPolicy
	for want, c := range map[string]struct {
		pod      *corev1.Pod
		policies policies
	}{
		"pod ns/web is being deleted: checkpoint a pod before it is deleted": {
			pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch} }), policies{policy("p")},
		},
		"pod ns/web is not running, it has ended (Succeeded): checkpoint a pod that runs": {
			pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), policies{policy("p")},
		},
		"pod ns/web is not running yet (Pending): wait until it is": {
			pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), policies{policy("p")},
		},
		"no PodSnapshotPolicy of namespace ns selects pod ns/web: create one whose selector matches the pod's labels": {
			pod(), policies{policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
				p.Spec.Selector.MatchLabels["app"] = "other"
			})},
		},
		"several PodSnapshotPolicies select pod ns/web: a, b; change their selectors so that one does": {
			pod(), policies{policy("b"), policy("a")},
		},
		"PodSnapshotPolicy p names no storage config: set spec.storageConfigName": {
			pod(), policies{policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.StorageConfigName = "" })},
		},
		"PodSnapshotPolicy p names the PodSnapshotStorageConfig gone, which does not exist: create it, or name another": {
			pod(), policies{policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.StorageConfigName = "gone" })},
		},
		"PodSnapshotStorageConfig empty names no backend that this agent knows: set gcs, s3, azureBlob or dir": {
			pod(), policies{policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.StorageConfigName = "empty" })},
		},
		"pod ns/web has debug containers that run (dbg), and a pod restored from its snapshot would wait for them " +
			"forever: end what runs in them, and try again": {pod(debugging), policies{policy("p")}},
		"pod ns/web lacks the label " + hashLabel + ", by which PodSnapshotPolicy p makes groups: give the pod that label": {
			pod(func(p *corev1.Pod) { delete(p.Labels, hashLabel) }), policies{policy("p")},
		},
	} {
		if _, err := rules.Prepare(c.pod, c.policies, find); err == nil || err.Error() != want || !rules.Refused(err) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestPolicyOfAnotherNamespace: such a policy applies to no pod here.
func TestPolicyOfAnotherNamespace(t *testing.T) {
	other := policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Namespace = "other" })
	if got := rules.Selecting(pod(), []podsnapshotv1.PodSnapshotPolicy{other}); len(got) != 0 {
		t.Errorf("selected by %s", rules.Names(got))
	}
}

// TestOthersInOrder: a policy's message names those that it overlaps with in one order, however they are listed.
// Otherwise its status would change now and then.
func TestOthersInOrder(t *testing.T) {
	p := policy("p")
	for _, all := range [][]podsnapshotv1.PodSnapshotPolicy{
		{p, policy("a"), policy("b")}, {policy("b"), policy("a"), p},
	} {
		if _, _, message := rules.Verdict(&p, all, find); !strings.Contains(message, "a pod that a, b also selects") {
			t.Errorf("the message is %q", message)
		}
	}
}

func TestPrepareLocal(t *testing.T) {
	if plan := rules.PrepareLocal(pod(), nil, find); plan.Policy != podsnapshotv1.NoPolicy || plan.Store != "" ||
		plan.SpecHash == "" || plan.ServiceAccount != "sa" {
		t.Errorf("plan %+v", plan)
	}
	two := []podsnapshotv1.PodSnapshotPolicy{policy("a"), policy("b")}
	if plan := rules.PrepareLocal(pod(), two, find); plan.Policy != podsnapshotv1.NoPolicy {
		t.Errorf("plan %+v", plan)
	}
	if plan := rules.PrepareLocal(pod(), two[:1], find); plan.Policy != "a" || plan.Store != "gs://b/p" {
		t.Errorf("plan %+v", plan)
	}
	for _, trigger := range []podsnapshotv1.TriggerType{podsnapshotv1.TriggerManual, podsnapshotv1.TriggerWorkload} {
		stops := policy("a", func(p *podsnapshotv1.PodSnapshotPolicy) {
			p.Spec.TriggerConfig = podsnapshotv1.TriggerConfig{Type: trigger, PostCheckpoint: podsnapshotv1.PostCheckpointStop}
		})
		if plan := rules.PrepareLocal(pod(), []podsnapshotv1.PodSnapshotPolicy{stops},
			find); plan.Stop != (trigger == podsnapshotv1.TriggerWorkload) {
			t.Errorf("%s: stop %v", trigger, plan.Stop)
		}
	}
}

// TestHostileWorkloadSave: a pod may save itself only if exactly one policy selects it, and if that has the workload
// for its trigger.
func TestHostileWorkloadSave(t *testing.T) {
	byWorkload := func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.TriggerConfig = podsnapshotv1.TriggerConfig{
			Type: podsnapshotv1.TriggerWorkload, PostCheckpoint: podsnapshotv1.PostCheckpointStop,
		}
	}
	manual := func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.TriggerConfig.Type = podsnapshotv1.TriggerManual }
	elsewhere := func(p *podsnapshotv1.PodSnapshotPolicy) { p.Namespace = "other" }
	others := func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.Selector.MatchLabels = map[string]string{"app": "x"} }
	for name, policies := range map[string][]podsnapshotv1.PodSnapshotPolicy{
		"no policy":                     nil,
		"a policy for triggers":         {policy("a", manual)},
		"a policy without a trigger":    {policy("a")},
		"a policy of another namespace": {policy("a", byWorkload, elsewhere)},
		"a policy for other pods":       {policy("a", byWorkload, others)},
		"two policies":                  {policy("a", byWorkload), policy("b", byWorkload)},
	} {
		if plan, err := rules.PrepareWorkload(pod(), policies, find); !rules.Refused(err) || plan != nil {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
	allowed := []podsnapshotv1.PodSnapshotPolicy{policy("a", byWorkload), policy("b", byWorkload, others)}
	plan, err := rules.PrepareWorkload(pod(), allowed, find)
	if err != nil || plan.Policy != "a" || !plan.Stop {
		t.Errorf("%+v, %v", plan, err)
	}
}

func TestMustRestore(t *testing.T) {
	fail := map[string]string{podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail}
	strict := policy("p")
	strict.Annotations = fail
	lax := policy("p")
	annotated := func(value string) (*corev1.Pod, *podsnapshotv1.PodSnapshotPolicy) {
		a := map[string]string{podsnapshotv1.AnnotationOnRestoreFailure: value}
		p := policy("p")
		p.Annotations = a
		return pod(func(p *corev1.Pod) { p.Annotations = a }), &p
	}
	coldPod, coldPolicy := annotated(podsnapshotv1.OnRestoreFailureColdStart)
	unknownPod, unknownPolicy := annotated("fail")
	for _, c := range []struct {
		pod    *corev1.Pod
		policy *podsnapshotv1.PodSnapshotPolicy
		want   bool
	}{
		{pod(), nil, false},
		{pod(), &lax, false},
		{pod(), &strict, true},
		{pod(func(p *corev1.Pod) { p.Annotations = fail }), nil, true},
		{coldPod, coldPolicy, false},
		{coldPod, &strict, true},
		{unknownPod, nil, true},
		{pod(), unknownPolicy, true},
	} {
		if got := rules.MustRestore(c.pod, c.policy); got != c.want {
			t.Errorf("MustRestore(%v, %v) = %v", c.pod.Annotations, c.policy, got)
		}
	}
}

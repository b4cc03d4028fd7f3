package manifests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"diapause.dev/test/bed"
)

const system = "diapause-system"

// The nodes of the tests; agents run on the first two.
const (
	here  = "node-a"
	there = "node-b"
)

// agents returns what the agents of two nodes connect with: tokens as a kubelet gets them for their
// pods.
func agents(t *testing.T) (onHere, onThere *rest.Config) {
	t.Helper()
	for _, node := range []string{here, there} {
		_, err := api.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			metav1.CreateOptions{})
		must(t, err)
		makePod(t, system, "agent-"+node, node, "diapause-agent")
	}
	t.Cleanup(func() {
		for _, node := range []string{here, there} {
			if err := api.Client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return agentOf(t, here), agentOf(t, there)
}

func agentOf(t *testing.T, node string) *rest.Config {
	t.Helper()
	pod, err := api.Client.CoreV1().Pods(system).Get(t.Context(), "agent-"+node, metav1.GetOptions{})
	must(t, err)
	return withToken(t, &authenticationv1.BoundObjectReference{
		Kind: "Pod", APIVersion: "v1", Name: pod.Name,
		UID: pod.UID,
	})
}

// withToken returns a configuration for the agents' service account.
func withToken(t *testing.T, bound *authenticationv1.BoundObjectReference) *rest.Config {
	t.Helper()
	return tokenOf(t, "diapause-agent", bound)
}

// controller returns what the controller connects with.
func controller(t *testing.T) *rest.Config {
	t.Helper()
	return tokenOf(t, "diapause-controller", nil)
}

// tokenOf returns a configuration for a service account of the installation.
func tokenOf(t *testing.T, account string, bound *authenticationv1.BoundObjectReference) *rest.Config {
	t.Helper()
	token, err := api.Client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}},
		metav1.CreateOptions{})
	must(t, err)
	c := rest.AnonymousClientConfig(api.Config)
	c.BearerToken = token.Status.Token
	return c
}

// makePod makes a pod that is bound to a node, and that nobody runs.
func makePod(t *testing.T, namespace, name, node, account string) {
	t.Helper()
	pods := api.Client.CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": "a"},
			Annotations: map[string]string{"kept": "1"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	})
}

func clientOf(t *testing.T, c *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	return client
}

// patch merges a patch into an object or a subresource of it.
func patch(t *testing.T, who *rest.Config, plural, name, body string, subresource ...string) error {
	t.Helper()
	namespace := "default"
	if plural == "podsnapshotstorageconfigs" {
		namespace = ""
	}
	_, err := resource(t, who, namespace, plural).Patch(t.Context(), name, types.MergePatchType, []byte(body),
		metav1.PatchOptions{}, subresource...)
	return err
}

// conditions is a patch of a status's conditions.
func conditions(kind, status, reason, more string) string {
	return fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": %q, "reason": %q, "message": "m", `+
		`"lastTransitionTime": "2026-01-01T00:00:00Z"}]%s}}`, kind, status, reason, more)
}

// TestAdmission: agents write objects of their own node.
func TestAdmission(t *testing.T) {
	onHere, onThere := agents(t)
	// The policies and the parameter take effect a little later than they are there.
	eventually(t, func() error {
		makeSnapshot := object(t, "{kind: PodSnapshot, metadata: {name: probe}, spec: {policyName: p}}")
		_, err := resource(t, onHere, "default", "podsnapshots").Create(t.Context(), makeSnapshot,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return denied(err, "origin-node")
	})
	t.Run("pods", func(t *testing.T) { admitPods(t, onHere) })
	t.Run("snapshots", func(t *testing.T) { admitSnapshots(t, onHere, onThere) })
	t.Run("triggers", func(t *testing.T) { admitTriggers(t, onHere, onThere) })
	t.Run("a token of no pod", func(t *testing.T) {
		loose := withToken(t, nil)
		o := object(t, "{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: p}}")
		_, err := resource(t, loose, "default", "podsnapshots").Create(t.Context(), o, metav1.CreateOptions{})
		refused(t, err, "the agent's token is not bound to a pod on a node")
	})
}

// ofKubelet is a patch of what a kubelet writes into the status of a pod.
const ofKubelet = `{"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
	"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
	"containerStatuses": [{"name": "c", "image": "none", "imageID": "", "ready": true, "restartCount": 0}],
	"conditions": [{"type": "Ready", "status": "True"}]}}`

func admitPods(t *testing.T, agent *rest.Config) {
	makePod(t, "default", "mine", here, "default")
	makePod(t, "default", "others", there, "default")
	_, err := api.Client.CoreV1().Pods("default").Patch(t.Context(), "mine", types.StrategicMergePatchType,
		[]byte(ofKubelet), metav1.PatchOptions{}, "status")
	must(t, err)
	pods := clientOf(t, agent).CoreV1().Pods("default")
	const restored = `{"status": {"conditions": [{"type": "PodRestored", "status": "True", "reason": "Restored", ` +
		`"message": "m"}]}}`
	for _, tc := range []struct {
		what, pod, patch string
		refused          []string
	}{
		{"PodRestored", "mine", restored, nil},
		{"PodRestored again", "mine", strings.Replace(restored, "True", "False", 1), nil},
		{"Asleep", "mine", strings.Replace(restored, "PodRestored", "diapause.dev/Asleep", 1), nil},
		{
			"the answer about its sleep", "mine", `{"metadata": {"annotations": {"diapause.dev/sleep-status": "{}"}}}`, nil,
		},
		{"the answer", "mine", `{"metadata": {"annotations": {"diapause.dev/checkpoint-status": "done"}}}`, nil},
		{"another answer", "mine", `{"metadata": {"annotations": {"diapause.dev/checkpoint-status": "failed"}}}`, nil},
		{"another node's pod", "others", restored, []string{"pods of its own node alone"}},
		{
			"Ready", "mine", strings.NewReplacer("PodRestored", "Ready", "True", "False").Replace(restored),
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"the phase", "mine", `{"status": {"phase": "Succeeded"}}`,
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"an address", "mine", `{"status": {"hostIP": "6.6.6.6", "hostIPs": [{"$patch": "replace"}, {"ip": "6.6.6.6"}]}}`,
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"a reason", "mine", `{"status": {"reason": "Evicted", "message": "m"}}`,
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"the end of a field", "mine", `{"status": {"startTime": null}}`,
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"an ephemeral container", "mine", `{"status": {"ephemeralContainerStatuses": [{"name": "e"}]}}`,
			[]string{"the conditions PodRestored and diapause.dev/Asleep alone"},
		},
		{
			"another annotation", "mine", `{"metadata": {"annotations": {"podsnapshot.gke.io/ps-name": "x"}}}`,
			[]string{"checkpoint-status and diapause.dev/sleep-status alone"},
		},
		{
			"an annotation's end", "mine", `{"metadata": {"annotations": {"kept": null}}}`,
			[]string{"checkpoint-status and diapause.dev/sleep-status alone"},
		},
		{
			"a label", "mine", `{"metadata": {"labels": {"app": "b"}}}`,
			[]string{"checkpoint-status and diapause.dev/sleep-status alone"},
		},
	} {
		_, err := pods.Patch(t.Context(), tc.pod, types.StrategicMergePatchType, []byte(tc.patch), metav1.PatchOptions{},
			"status")
		t.Run(tc.what, func(t *testing.T) { refused(t, err, tc.refused...) })
	}
	pod, err := pods.Get(t.Context(), "mine", metav1.GetOptions{})
	must(t, err)
	if pod.Annotations["diapause.dev/checkpoint-status"] != "failed" || len(pod.Status.Conditions) != 3 {
		t.Errorf("the pod has the annotations %v and conditions %v", pod.Annotations, pod.Status.Conditions)
	}
	_, err = pods.Patch(t.Context(), "mine", types.StrategicMergePatchType,
		[]byte(`{"metadata": {"labels": {"app": "b"}}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("an agent changes a pod itself: %v", err)
	}
}

func admitSnapshots(t *testing.T, onHere, onThere *rest.Config) {
	made := object(t, "{kind: PodSnapshot, metadata: {name: s, annotations: {diapause.dev/origin-node: node-a}, "+
		"finalizers: [podsnapshot.gke.io/podsnapshot-finalizer]}, spec: {policyName: p}}")
	_, err := resource(t, onThere, "default", "podsnapshots").Create(t.Context(), made, metav1.CreateOptions{})
	refused(t, err, "whose annotation diapause.dev/origin-node is its own node")
	_, err = resource(t, onHere, "default", "podsnapshots").Create(t.Context(), made, metav1.CreateOptions{})
	must(t, err)

	ready := conditions("Ready", "True", "AllSnapshotsAvailable", "")
	const accessed, finalized = `{"status": {"lastAccessTime": "2026-01-01T00:00:00Z"}}`,
		`{"metadata": {"finalizers": null}}`
	refused(t, patch(t, onHere, "podsnapshots", "s", ready, "status"), "Ready only once the controller has confirmed it")
	must(t, patch(t, onHere, "podsnapshots", "s", conditions("Ready", "False", "AwaitingConfirmation", ""), "status"))
	must(t, patch(t, controller(t), "podsnapshots", "s",
		`{"metadata": {"annotations": {"diapause.dev/confirmed": "true"}}}`))
	must(t, patch(t, onHere, "podsnapshots", "s", ready, "status"))
	must(t, patch(t, onThere, "podsnapshots", "s", accessed, "status"))
	refused(t, patch(t, onThere, "podsnapshots", "s", conditions("Ready", "False", "Failed", ""), "status"),
		"lastAccessTime alone")
	refused(t, patch(t, onThere, "podsnapshots", "s",
		`{"status": {"storageStatus": {"gcs": {"observedGCSPath": "gs://x"}}}}`, "status"), "lastAccessTime alone")
	refused(t, patch(t, onThere, "podsnapshots", "s", `{"status": {"observedCheckpointRetryCount": 9}}`, "status"),
		"lastAccessTime alone")
	refused(t, patch(t, onThere, "podsnapshots", "s", finalized), "diapause.dev/origin-node is its own node")
	refused(t, patch(t, onHere, "podsnapshots", "s",
		`{"metadata": {"annotations": {"diapause.dev/origin-node": "node-b"}}}`),
		"the origin node of a PodSnapshot cannot be changed")
	must(t, patch(t, onHere, "podsnapshots", "s", `{"metadata": {"annotations": {"diapause.dev/remove": "true"}}}`))
	refused(t, patch(t, onThere, "podsnapshots", "s", `{"metadata": {"annotations": {"diapause.dev/remove": null}}}`),
		"diapause.dev/origin-node is its own node")

	must(t, resource(t, controller(t), "default", "podsnapshots").Delete(t.Context(), "s", metav1.DeleteOptions{}))
	must(t, patch(t, onHere, "podsnapshots", "s", finalized))
	_, err = resource(t, api.Config, "default", "podsnapshots").Get(t.Context(), "s", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the snapshot is still there: %v", err)
	}
}

func admitTriggers(t *testing.T, onHere, onThere *rest.Config) {
	makePod(t, "default", "mine", here, "default")
	makePod(t, "default", "others", there, "default")
	create(t, "default", "podsnapshotmanualtriggers",
		object(t, "{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: mine}}"))
	taken := conditions("Triggered", "Unknown", "Checkpointing", `, "nodeName": "node-a"`)
	write := func(who *rest.Config, body string) error {
		return patch(t, who, "podsnapshotmanualtriggers", "t", body, "status")
	}
	takenThere := strings.Replace(taken, here, there, 1)
	refused(t, write(onHere, takenThere), "takes a trigger for its own node alone")
	eventually(t, func() error { // the policy sees the pods a little later than they are there
		_, err := resource(t, onThere, "default", "podsnapshotmanualtriggers").Patch(t.Context(), "t", types.MergePatchType,
			[]byte(takenThere), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return denied(err, "takes triggers of pods of its own node alone")
	})
	refused(t, write(onHere, conditions("Triggered", "True", "Complete",
		`, "nodeName": "node-a", "snapshotCreated": {"name": "s"}`)), "completes triggers that it has taken before")
	must(t, write(onHere, taken))
	eventually(t, func() error {
		return denied(write(onThere, conditions("Triggered", "False", "Failed", "")), "that it has taken")
	})
	must(t, write(onHere, conditions("Triggered", "True", "Complete", `, "snapshotCreated": {"name": "s"}`)))
	refused(t, write(onHere, conditions("Triggered", "False", "Failed", "")),
		"a trigger that is complete or has failed stays so")
	refused(t, write(onHere, `{"status": {"snapshotCreated": {"name": "other"}}}`),
		"a trigger that is complete or has failed stays so")

	create(t, "default", "podsnapshotmanualtriggers",
		object(t, "{kind: PodSnapshotManualTrigger, metadata: {name: u}, spec: {targetPod: none}}"))
	must(t, patch(t, onThere, "podsnapshotmanualtriggers", "u", conditions("Triggered", "False", "Failed", ""), "status"))
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, bed.Until(ctx, f))
}

// denied returns nil if err says want.
func denied(err error, want string) error {
	if err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("not refused with %q: %w", want, err)
	}
	return nil
}

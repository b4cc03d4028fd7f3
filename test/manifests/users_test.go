package manifests

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// as returns what a user connects with who has all verbs in a namespace, except those on podsnapshots, of which the
// user has some.
func as(t *testing.T, user, namespace string, verbs []string, names ...string) *rest.Config {
	t.Helper()
	roles, bindings := api.Client.RbacV1().Roles(namespace), api.Client.RbacV1().RoleBindings(namespace)
	_, err := roles.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{""}, Resources: []string{"pods", "pods/binding", "pods/status", "bindings"},
				Verbs: []string{"*"},
			},
			{
				APIGroups: []string{"podsnapshot.gke.io"}, Resources: []string{"podsnapshots", "podsnapshots/status"},
				Verbs: verbs, ResourceNames: names,
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		for _, err := range []error{
			roles.Delete(context.Background(), user, metav1.DeleteOptions{}),
			bindings.Delete(context.Background(), user, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	c := rest.CopyConfig(api.Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	return c
}

// TestHostileUserSnapshots: a user whom RBAC lets write PodSnapshots makes none, and changes nothing of one that an
// agent relies on.
func TestHostileUserSnapshots(t *testing.T) {
	user := as(t, "mallory", "default", []string{"create", "get", "update", "patch", "delete"})
	r := resource(t, user, "default", "podsnapshots")
	eventually(t, func() error { // the policy, and the role, take effect a little later than they are there
		_, err := r.Create(t.Context(), object(t, "{kind: PodSnapshot, metadata: {name: forged}, spec: {policyName: p}}"),
			metav1.CreateOptions{})
		return denied(err, "create a PodSnapshotManualTrigger")
	})
	create(t, "default", "podsnapshots", object(t, "{kind: PodSnapshot, metadata: {name: s, labels: {app: a}, "+
		"annotations: {diapause.dev/origin-node: node-a, mine: a}}, spec: {policyName: p}}"))
	for what, tc := range map[string]struct {
		patch, subresource string
		refused            []string
	}{
		"its own annotation": {`{"metadata": {"annotations": {"mine": "b"}}}`, "", nil},
		"an annotation": {
			`{"metadata": {"annotations": {"diapause.dev/origin-node": "node-b"}}}`, "",
			[]string{"annotations"},
		},
		"a new annotation": {
			`{"metadata": {"annotations": {"podsnapshot.gke.io/origin-pod": "b"}}}`, "",
			[]string{"annotations"},
		},
		"an annotation's end": {
			`{"metadata": {"annotations": {"diapause.dev/origin-node": null}}}`, "",
			[]string{"annotations"},
		},
		"all annotations' end": {`{"metadata": {"annotations": null}}`, "", []string{"annotations"}},
		"a label":              {`{"metadata": {"labels": {"app": "b"}}}`, "", []string{"labels"}},
		"the spec":             {`{"spec": {"policyName": "q"}}`, "", []string{"spec"}},
		"the status": {
			conditions("Ready", "True", "AllSnapshotsAvailable", ""), "status",
			[]string{"the status of a PodSnapshot"},
		},
		"where it is stored": {
			`{"status": {"storageStatus": {"gcs": {"observedGCSPath": "gs://x/default/snapshots/s"}}}}`, "status",
			[]string{"the status of a PodSnapshot"},
		},
	} {
		var sub []string
		if tc.subresource != "" {
			sub = []string{tc.subresource}
		}
		t.Run(what, func(t *testing.T) { refused(t, patch(t, user, "podsnapshots", "s", tc.patch, sub...), tc.refused...) })
	}
}

// TestAdministratorAdopts: who has all verbs may bring back a PodSnapshot.
func TestAdministratorAdopts(t *testing.T) {
	user := as(t, "operator", "default", []string{"*"})
	r := resource(t, user, "default", "podsnapshots")
	eventually(t, func() error {
		_, err := r.Create(t.Context(), object(t, "{kind: PodSnapshot, metadata: {name: kept}, spec: {policyName: p}}"),
			metav1.CreateOptions{})
		return err
	})
	must(t, patch(t, user, "podsnapshots", "kept", conditions("Ready", "True", "AllSnapshotsAvailable", ""), "status"))
	must(t, r.Delete(t.Context(), "kept", metav1.DeleteOptions{}))
}

// restricted makes a namespace in which a restore needs permission, with policies that select pods by label.
func restricted(t *testing.T, name string) {
	t.Helper()
	_, err := api.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"diapause.dev/restore-requires-permission": ""},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = api.Client.CoreV1().ServiceAccounts(name).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	must(t, err)
	for policyName, selector := range map[string]map[string]any{
		"p": {
			"matchLabels": map[string]any{"saved": "yes"},
			"matchExpressions": []any{
				map[string]any{"key": "tier", "operator": "In", "values": []any{"a", "b"}},
				map[string]any{"key": "never", "operator": "DoesNotExist"},
			},
		},
		"of-a-zone": {"matchLabels": map[string]any{"zoned": "yes", "topology.kubernetes.io/zone": "z"}},
	} {
		p := object(t, policy(""))
		p.SetName(policyName)
		must(t, unstructured.SetNestedMap(p.Object, selector, "spec", "selector"))
		create(t, name, "podsnapshotpolicies", p)
	}
}

// TestHostileRestore: in a namespace that requires it, nobody has a pod started from a snapshot without permission,
// neither by its name nor by labels, nor by changing a pod afterwards.
func TestHostileRestore(t *testing.T) {
	const namespace = "restricted"
	restricted(t, namespace)
	mallory := as(t, "mallory", namespace, []string{"get"})
	alice := as(t, "alice", namespace, []string{"restore"})
	bob := as(t, "bob", namespace, []string{"restore"}, "hers")
	selected := map[string]string{"saved": "yes", "tier": "a"}
	named := func(name string) map[string]string { return map[string]string{"podsnapshot.gke.io/ps-name": name} }
	from := func(name string) map[string]string { return map[string]string{"diapause.dev/restore-from": name} }
	zoned := map[string]string{"zoned": "yes"} // its zone it has once it is bound
	for _, labels := range []map[string]string{selected, zoned} {
		eventually(t, func() error { return denied(makesPod(t, mallory, namespace, labels, nil), "selects") })
	}
	eventually(t, func() error { return makesPod(t, alice, namespace, selected, nil) })
	for what, tc := range map[string]struct {
		who                 *rest.Config
		labels, annotations map[string]string
		refused             []string
	}{
		"an ordinary pod":                 {mallory, nil, nil, nil},
		"a pod of other labels":           {mallory, map[string]string{"saved": "yes", "tier": "c"}, nil, nil},
		"a pod without a label":           {mallory, map[string]string{"tier": "a"}, nil, nil},
		"a pod that is left out":          {mallory, map[string]string{"saved": "yes", "tier": "a", "never": ""}, nil, nil},
		"a pod by labels":                 {mallory, selected, nil, []string{"mallory may not make a pod that"}},
		"a pod by name":                   {mallory, nil, named("hers"), []string{"mallory may not restore"}},
		"a pod by the other annotation":   {mallory, nil, from(namespace + "/hers"), []string{"mallory may not restore"}},
		"with permission by name":         {alice, nil, named("hers"), nil},
		"with permission for one":         {bob, nil, named("hers"), nil},
		"with permission for one, from":   {bob, nil, from(namespace + "/hers"), nil},
		"with permission for another one": {bob, nil, named("his"), []string{"bob may not restore"}},
		"with permission for one, labels": {bob, selected, nil, []string{"bob may not make a pod"}},
		"one allowed and one not": {
			bob, nil,
			map[string]string{"podsnapshot.gke.io/ps-name": "hers", "diapause.dev/restore-from": "his"},
			[]string{"bob may not restore"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			refused(t, makesPod(t, tc.who, namespace, tc.labels, tc.annotations), tc.refused...)
		})
	}
	t.Run("afterwards", func(t *testing.T) { changesPod(t, mallory, namespace) })
	t.Run("bound", func(t *testing.T) { bindsPod(t, mallory, alice, namespace) })
	t.Run("elsewhere", func(t *testing.T) { // nothing is required
		there := as(t, "mallory", "default", []string{"get"})
		eventually(t, func() error { // the role takes effect a little later than it is there
			return makesPod(t, there, "default", selected, named("hers"))
		})
	})
}

// TestAnnotationValues: an annotation with a value that means nothing is refused where it is written, on a pod and on a
// policy.
func TestAnnotationValues(t *testing.T) {
	const onFailure, onTermination = "diapause.dev/on-restore-failure", "diapause.dev/on-termination"
	const onLoss, onNetAdmin = "diapause.dev/on-sandbox-loss", "diapause.dev/on-net-admin"
	policies := resource(t, api.Config, "default", "podsnapshotpolicies")
	makesPolicy := func(annotation, value string) error {
		p := object(t, policy(""))
		p.SetAnnotations(map[string]string{annotation: value})
		_, err := policies.Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	pod := func(value string) error {
		return makesPod(t, api.Config, "default", nil, map[string]string{onFailure: value})
	}
	const wrong = `annotation diapause.dev/on-restore-failure is "fail": its values are Fail and ColdStart`
	for _, f := range []func() error{ // the policy takes effect a little later than it is there
		func() error { return pod("fail") },
		func() error { return makesPolicy(onFailure, "fail") },
	} {
		eventually(t, func() error { return denied(f(), wrong) })
	}
	refused(t, makesPolicy(onTermination, "Checkpoint"),
		`annotation diapause.dev/on-termination is "Checkpoint": its only value is checkpoint`)
	refused(t, makesPolicy(onLoss, "restore"),
		`annotation diapause.dev/on-sandbox-loss is "restore": its only value is restore-latest`)
	refused(t, makesPolicy(onNetAdmin, "Fail"),
		`annotation diapause.dev/on-net-admin is "Fail": its values are warn and fail`)
	refused(t, pod(""), `on-restore-failure is ""`)
	for _, value := range []string{"Fail", "ColdStart"} {
		must(t, pod(value))
		must(t, makesPolicy(onFailure, value))
	}
	makes := func(value string) error {
		return makesPod(t, api.Config, "default", nil, map[string]string{"diapause.dev/volume-check": value})
	}
	refused(t, makes("off"), `annotation diapause.dev/volume-check is "off": its only value is ignore`)
	must(t, makes("ignore"))
	must(t, makesPolicy(onTermination, "checkpoint"))
	must(t, makesPolicy(onLoss, "restore-latest"))
	for _, value := range []string{"warn", "fail"} {
		must(t, makesPolicy(onNetAdmin, value))
	}
	create(t, "default", "podsnapshotpolicies", object(t, policy("")))
	refused(t, patch(t, api.Config, "podsnapshotpolicies", "p",
		`{"metadata": {"annotations": {"diapause.dev/on-restore-failure": "fail"}}}`), wrong)
	must(t, patch(t, api.Config, "podsnapshotpolicies", "p", `{"metadata": {"annotations": {"mine": "fail"}}}`))
}

// changesPod makes an ordinary pod, which then asks for a restore.
func changesPod(t *testing.T, who *rest.Config, namespace string) {
	pods := clientOf(t, who).CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), podOf("ordinary", nil, nil), metav1.CreateOptions{})
	must(t, err)
	for _, through := range [][]string{nil, {"status"}} { // the pod, and its status
		change := func(body string) error {
			_, err := pods.Patch(t.Context(), "ordinary", types.MergePatchType, []byte(body), metav1.PatchOptions{}, through...)
			return err
		}
		must(t, change(`{"metadata": {"labels": {"saved": "no"}}}`))
		refused(t, change(`{"metadata": {"annotations": {"podsnapshot.gke.io/ps-name": "hers"}}}`), "may not restore")
		refused(t, change(`{"metadata": {"labels": {"saved": "yes", "tier": "b"}}}`), "may not make a pod")
	}
}

// bindsPod makes an ordinary pod, and has somebody bind it to a node with annotations and labels, which the pod then
// has.
func bindsPod(t *testing.T, mallory, alice *rest.Config, namespace string) {
	_, err := clientOf(t, mallory).CoreV1().Pods(namespace).Create(t.Context(), podOf("bound", nil, nil),
		metav1.CreateOptions{})
	must(t, err)
	bind := func(who *rest.Config, resource string, labels, annotations map[string]string) error {
		r := clientOf(t, who).CoreV1().RESTClient().Post().Namespace(namespace).Resource(resource)
		if resource == "pods" {
			r = r.Name("bound").SubResource("binding")
		}
		return r.Body(&corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "bound", Labels: labels, Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: here},
		}).VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, scheme.ParameterCodec).
			Do(t.Context()).Error()
	}
	named := map[string]string{"podsnapshot.gke.io/ps-name": "hers"}
	selected := map[string]string{"saved": "yes", "tier": "a"}
	zone := map[string]string{"topology.kubernetes.io/zone": "z"} // the API server copies it from the node
	for _, resource := range []string{"pods", "bindings"} {
		must(t, bind(mallory, resource, zone, map[string]string{"mine": ""}))
		refused(t, bind(mallory, resource, nil, named), "mallory may not restore")
		refused(t, bind(mallory, resource, nil, map[string]string{"diapause.dev/restore-from": namespace + "/hers"}),
			"mallory may not restore")
		refused(t, bind(mallory, resource, selected, nil), "mallory may not give a pod labels")
		refused(t, bind(mallory, resource, map[string]string{"tier": "a"}, nil), "mallory may not give a pod labels")
		must(t, bind(alice, resource, selected, named))
	}
}

// makesPod has somebody make a pod, which is not stored.
func makesPod(t *testing.T, who *rest.Config, namespace string, labels, annotations map[string]string) error {
	t.Helper()
	_, err := clientOf(t, who).CoreV1().Pods(namespace).Create(t.Context(), podOf("probe", labels, annotations),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func podOf(name string, labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

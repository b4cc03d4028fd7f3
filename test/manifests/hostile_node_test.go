package manifests

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestHostileNodeDeletes: a node that was taken over deletes no PodSnapshot, be it its own or another node's.
func TestHostileNodeDeletes(t *testing.T) {
	onHere, onThere := agents(t)
	create(t, "default", "podsnapshots", object(t, "{kind: PodSnapshot, metadata: {name: s, "+
		"annotations: {diapause.dev/origin-node: node-a}}, spec: {policyName: p}}"))
	for what, who := range map[string]*rest.Config{"its own": onHere, "another node's": onThere} {
		r := resource(t, who, "default", "podsnapshots")
		if err := r.Delete(t.Context(), "s", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("all: %v", err)
		}
	}
}

// TestHostileNodeTakesLease: a node that was taken over can neither take the controller's Lease, nor delete it.
func TestHostileNodeTakesLease(t *testing.T) {
	onHere, _ := agents(t)
	leases := clientOf(t, onHere).CoordinationV1().Leases(system)
	lease, err := leases.Get(t.Context(), "diapause-agent", metav1.GetOptions{})
	must(t, err)
	lease.Spec.HolderIdentity = new(here)
	if _, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("it takes the Lease: %v", err)
	}
	_, err = leases.Patch(t.Context(), "diapause-agent", types.MergePatchType, []byte(`{"spec": {"holderIdentity": "x"}}`),
		metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("it patches the Lease: %v", err)
	}
	if err := leases.Delete(t.Context(), "diapause-agent", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("it deletes the Lease: %v", err)
	}
}

// TestHostileNodeJudges: a node that was taken over does not say whether policies and stores can be used.
func TestHostileNodeJudges(t *testing.T) {
	onHere, _ := agents(t)
	create(t, "default", "podsnapshotpolicies", object(t, policy("")))
	create(t, "", "podsnapshotstorageconfigs", object(t, config("{dir: {path: /a}}")))
	ready := conditions("Ready", "True", "Valid", "")
	for plural, name := range map[string]string{"podsnapshotpolicies": "p", "podsnapshotstorageconfigs": "c"} {
		if err := patch(t, onHere, plural, name, ready, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("of %s: %v", plural, err)
		}
		must(t, patch(t, controller(t), plural, name, ready, "status"))
	}
}

// TestHostileNodeActsAsController: with the token of its agent a node gets no token of the controller, and reads none.
func TestHostileNodeActsAsController(t *testing.T) {
	onHere, _ := agents(t)
	accounts := clientOf(t, onHere).CoreV1().ServiceAccounts(system)
	if _, err := accounts.CreateToken(t.Context(), "diapause-controller", new(authenticationv1.TokenRequest),
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("it gets a token: %v", err)
	}
	c := *onHere
	c.Impersonate.UserName = "system:serviceaccount:" + system + ":diapause-controller"
	err := resource(t, &c, "default", "podsnapshots").Delete(t.Context(), "any", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("it acts as the controller: %v", err)
	}
}

// TestHostileNodeConfirms: a node that was taken over does not confirm its PodSnapshots, neither when it makes one nor
// later. Nor does it change one that is confirmed into one of another pod.
func TestHostileNodeConfirms(t *testing.T) {
	onHere, onThere := agents(t)
	r := resource(t, onHere, "default", "podsnapshots")
	const snapshot = "{kind: PodSnapshot, metadata: {name: %s, labels: {app: a}, annotations: {%s" +
		"diapause.dev/origin-node: node-a, diapause.dev/snapshot-uid: u, podsnapshot.gke.io/origin-pod: web}}, " +
		"spec: {policyName: p}}"
	eventually(t, func() error {
		_, err := r.Create(t.Context(), object(t, fmt.Sprintf(snapshot, "born", "diapause.dev/confirmed: 'true', ")),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return denied(err, "only the controller says")
	})
	_, err := r.Create(t.Context(), object(t, fmt.Sprintf(snapshot, "born", "diapause.dev/adopted-from: c/n, ")),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	refused(t, err, "only an administrator has this cluster take over")
	_, err = r.Create(t.Context(), object(t, fmt.Sprintf(snapshot, "s", "")), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, resource(t, api.Config, "default", "podsnapshots").Delete(context.Background(), "s", metav1.DeleteOptions{}))
	})
	const confirm = `{"metadata": {"annotations": {"diapause.dev/confirmed": "true"}}}`
	refused(t, patch(t, onHere, "podsnapshots", "s", confirm), "of a PodSnapshot that is there an agent changes")
	refused(t, patch(t, onThere, "podsnapshots", "s", confirm), "is its own node")
	must(t, patch(t, onHere, "podsnapshots", "s", confirm, "status")) // which changes no annotation
	made, err := r.Get(t.Context(), "s", metav1.GetOptions{})
	must(t, err)
	if made.GetAnnotations()["diapause.dev/confirmed"] != "" {
		t.Errorf("it is confirmed by its status: %v", made.GetAnnotations())
	}
	const ready = "Ready only once the controller has confirmed it"
	refused(t, patch(t, onHere, "podsnapshots", "s", conditions("Ready", "True", "AllSnapshotsAvailable", ""), "status"),
		ready)
	must(t, patch(t, controller(t), "podsnapshots", "s",
		`{"metadata": {"annotations": {"diapause.dev/confirmed": "its pod was on node b"}}}`))
	refused(t, patch(t, onHere, "podsnapshots", "s", conditions("Ready", "True", "AllSnapshotsAvailable", ""), "status"),
		ready)
	must(t, patch(t, controller(t), "podsnapshots", "s", confirm))
	for what, body := range map[string]string{
		"unconfirmed":       `{"metadata": {"annotations": {"diapause.dev/confirmed": null}}}`,
		"another snapshot":  `{"metadata": {"annotations": {"diapause.dev/snapshot-uid": "v"}}}`,
		"another cluster":   `{"metadata": {"annotations": {"diapause.dev/adopted-from": "c/n"}}}`,
		"another pod":       `{"metadata": {"annotations": {"podsnapshot.gke.io/origin-pod": "db"}}}`,
		"another account":   `{"metadata": {"annotations": {"diapause.dev/service-account": "admin"}}}`,
		"another spec":      `{"metadata": {"annotations": {"diapause.dev/spec-hash": "v1:0"}}}`,
		"another group":     `{"metadata": {"labels": {"app": "b"}}}`,
		"no group":          `{"metadata": {"labels": null}}`,
		"another policy":    `{"spec": {"policyName": "q"}}`,
		"none of all of it": `{"metadata": {"annotations": null}}`,
	} {
		if err := patch(t, onHere, "podsnapshots", "s", body); err == nil {
			t.Errorf("%s: it is accepted", what)
		}
	}
	must(t, patch(t, onHere, "podsnapshots", "s", `{"metadata": {"annotations": {"diapause.dev/runsc-version": "r"}}}`))
}

// TestHostileNodeInherits: a node that was taken over does not say that other pods than those that it named at first
// are restored from the snapshot of a sleep, nor that they are restored from it from the start.
func TestHostileNodeInherits(t *testing.T) {
	onHere, _ := agents(t)
	const sleeps = "diapause.dev/purpose: sleep, diapause.dev/inheritable: 'app=web,tier=a'"
	eventually(t, func() error {
		born := object(t, "{kind: PodSnapshot, metadata: {name: born, annotations: {diapause.dev/origin-node: node-a, "+
			sleeps+", diapause.dev/inherited: 'true'}}, spec: {policyName: p}}")
		_, err := resource(t, onHere, "default", "podsnapshots").Create(t.Context(), born,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return denied(err, "a new PodSnapshot is not inherited")
	})
	for name, tc := range map[string]struct {
		annotations string
		patch       string
		allowed     bool
	}{
		"as-it-said":   {sleeps, `{app: web, tier: a}, annotations: {diapause.dev/inherited: "true"}`, true},
		"other-labels": {sleeps, `{app: bank, tier: a}, annotations: {diapause.dev/inherited: "true"}`, false},
		"more-labels":  {sleeps, `{app: web, tier: a, x: y}, annotations: {diapause.dev/inherited: "true"}`, false},
		"labels-alone": {sleeps, `{app: web, tier: a}`, false},
		"another-change": {
			sleeps, `{app: web}, annotations: {diapause.dev/inherited: "true", diapause.dev/purpose: x}`, false,
		},
		"of-no-sleep": {
			"diapause.dev/inheritable: 'app=web'", `{app: web}, annotations: {diapause.dev/inherited: "true"}`, false,
		},
		"not-inheritable": {"diapause.dev/purpose: sleep", `{}, annotations: {diapause.dev/inherited: "true"}`, false},
	} {
		create(t, "default", "podsnapshots", object(t, fmt.Sprintf("{kind: PodSnapshot, metadata: {name: %s, annotations: "+
			"{diapause.dev/origin-node: node-a, %s}}, spec: {policyName: p}}", name, tc.annotations)))
		change, err := json.Marshal(object(t, "{metadata: {labels: "+tc.patch+"}}").Object)
		must(t, err)
		if err := patch(t, onHere, "podsnapshots", name, string(change)); (err == nil) != tc.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileUserConfirms: a user whom RBAC lets write PodSnapshots does not confirm one. An administrator does.
func TestHostileUserConfirms(t *testing.T) {
	create(t, "default", "podsnapshots", object(t, "{kind: PodSnapshot, metadata: {name: s, "+
		"annotations: {diapause.dev/origin-node: node-a}}, spec: {policyName: p}}"))
	const confirm = `{"metadata": {"annotations": {"diapause.dev/confirmed": "true"}}}`
	user := as(t, "eve", "default", []string{"get", "update", "patch"})
	eventually(t, func() error {
		return denied(patch(t, user, "podsnapshots", "s", confirm), "written by Diapause alone")
	})
	administrator := as(t, "root", "default", []string{"*"})
	eventually(t, func() error { return patch(t, administrator, "podsnapshots", "s", confirm) })
}

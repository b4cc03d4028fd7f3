package manifests

import (
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

package manifests

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// permission is what a service account may do, or may not.
type permission struct {
	verb, group, resource, subresource, namespace, name string
	allowed                                             bool
}

// TestPermissions: what the agents' service account may do, and what it may not.
func TestPermissions(t *testing.T) {
	permitted(t, "diapause-agent", []permission{
		{"list", "", "pods", "", "", "", true},
		{"watch", "", "pods", "", "", "", true},
		{"patch", "", "pods", "status", "default", "", true},
		{"get", "", "nodes", "", "", "", true},
		{"get", "", "namespaces", "", "", "kube-system", true},
		{"create", "events.k8s.io", "events", "", "default", "", true},
		{"create", "podsnapshot.gke.io", "podsnapshots", "", "default", "", true},
		{"update", "podsnapshot.gke.io", "podsnapshots", "status", "default", "", true},
		{"watch", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "", "", "", true},
		{"update", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "status", "default", "", true},
		{"get", "coordination.k8s.io", "leases", "", system, "diapause-agent", true},
		{"get", "coordination.k8s.io", "leases", "", "kube-node-lease", here, true},

		{"watch", "diapause.dev", "sleeppolicies", "", "", "", true},

		{"patch", "diapause.dev", "sleeppolicies", "status", "default", "", false},
		{"update", "diapause.dev", "sleeppolicies", "", "default", "", false},
		{"delete", "podsnapshot.gke.io", "podsnapshots", "", "default", "", false},
		{"deletecollection", "podsnapshot.gke.io", "podsnapshots", "", "default", "", false},
		{"update", "podsnapshot.gke.io", "podsnapshotstorageconfigs", "status", "", "", false},
		{"update", "podsnapshot.gke.io", "podsnapshotpolicies", "status", "default", "", false},
		{"update", "coordination.k8s.io", "leases", "", system, "diapause-agent", false},
		{"patch", "", "pods", "", "default", "", false},
		{"delete", "", "pods", "", "default", "", false},
		{"create", "", "pods", "exec", "default", "", false},
		{"update", "", "nodes", "", "", "", false},
		{"get", "", "namespaces", "", "", "default", true},
		{"update", "", "namespaces", "", "", "default", false},
		{"list", "", "namespaces", "", "", "", false},
		{"get", "", "secrets", "", "default", "", false},
		{"get", "", "secrets", "", system, "", false},
		{"get", "", "configmaps", "", "default", "", false},
		{"create", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "", "default", "", false},
		{"delete", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "", "default", "", false},
		{"update", "podsnapshot.gke.io", "podsnapshotpolicies", "", "default", "", false},
		{"update", "coordination.k8s.io", "leases", "", system, "other", false},
		{"delete", "coordination.k8s.io", "leases", "", system, "diapause-agent", false},
		{"update", "coordination.k8s.io", "leases", "", "kube-node-lease", here, false},
		{"get", "coordination.k8s.io", "leases", "", "kube-system", "x", false},
	})
}

// TestControllerPermissions: what the controller's service account may do, and what it may not.
func TestControllerPermissions(t *testing.T) {
	permitted(t, "diapause-controller", []permission{
		{"delete", "podsnapshot.gke.io", "podsnapshots", "", "default", "", true},
		{"patch", "podsnapshot.gke.io", "podsnapshots", "", "default", "", true},
		{"patch", "podsnapshot.gke.io", "podsnapshots", "status", "default", "", true},
		{"patch", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "status", "default", "", true},
		{"patch", "podsnapshot.gke.io", "podsnapshotpolicies", "status", "default", "", true},
		{"patch", "podsnapshot.gke.io", "podsnapshotstorageconfigs", "status", "", "", true},
		{"watch", "diapause.dev", "sleeppolicies", "", "", "", true},
		{"patch", "diapause.dev", "sleeppolicies", "status", "default", "", true},
		{"update", "diapause.dev", "sleeppolicies", "", "default", "", false},
		{"get", "", "pods", "", "default", "", true},
		{"watch", "", "pods", "", "", "", true},
		{"get", "", "nodes", "", "", "", true},
		{"get", "", "namespaces", "", "", "kube-system", true},
		{"update", "coordination.k8s.io", "leases", "", system, "diapause-agent", true},
		{"get", "coordination.k8s.io", "leases", "", "kube-node-lease", here, true},

		{"create", "podsnapshot.gke.io", "podsnapshots", "", "default", "", false},
		{"adopt", "podsnapshot.gke.io", "podsnapshots", "", "default", "", false},
		{"create", "podsnapshot.gke.io", "podsnapshotmanualtriggers", "", "default", "", false},
		{"update", "podsnapshot.gke.io", "podsnapshotpolicies", "", "default", "", false},
		{"patch", "", "pods", "status", "default", "", false},
		{"delete", "", "pods", "", "default", "", false},
		{"create", "", "pods", "exec", "default", "", false},
		{"get", "", "secrets", "", "default", "", false},
		{"get", "", "secrets", "", system, "", false},
		{"delete", "coordination.k8s.io", "leases", "", system, "diapause-agent", false},
		{"update", "coordination.k8s.io", "leases", "", "kube-node-lease", here, false},
	})
}

// permitted checks what a service account of the installation may do.
func permitted(t *testing.T, account string, all []permission) {
	t.Helper()
	for _, tc := range all {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + system + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: tc.verb, Group: tc.group, Resource: tc.resource, Subresource: tc.subresource, Namespace: tc.namespace,
				Name: tc.name,
			},
		}}
		got, err := api.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		must(t, err)
		if got.Status.Allowed != tc.allowed {
			t.Errorf("%s %s/%s in %q: allowed %v, want %v", tc.verb, tc.resource, tc.subresource, tc.namespace,
				got.Status.Allowed, tc.allowed)
		}
	}
}

// TestPoliciesHaveTypes: the API server has checked the expressions of our policies against the
// types of what they look at, and found nothing.
func TestPoliciesHaveTypes(t *testing.T) {
	policies, err := api.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(),
		metav1.ListOptions{})
	must(t, err)
	for _, p := range policies.Items {
		if p.Status.TypeChecking != nil {
			for _, w := range p.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
			}
		}
	}
}

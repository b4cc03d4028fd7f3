package manifests

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNetworkPolicies: nobody connects to an agent or the controller, and no port is closed to them. An API server, a
// proxy or object storage may be at any.
func TestNetworkPolicies(t *testing.T) {
	policies, err := api.Client.NetworkingV1().NetworkPolicies(system).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(policies.Items) != 1 {
		t.Fatalf("%d NetworkPolicies, want 1", len(policies.Items))
	}
	s := policies.Items[0].Spec
	if len(s.PolicyTypes) != 1 || s.PolicyTypes[0] != networkingv1.PolicyTypeIngress || len(s.Ingress)+len(s.Egress) > 0 {
		t.Errorf("the policy is of types %v, with the rules %v and %v", s.PolicyTypes, s.Ingress, s.Egress)
	}
}

package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"
)

// everything has the chart render all its objects but those that exclude others.
var everything = merge(set("namespace.manage", true), restricted,
	set("monitoring", vals{"alerts": true, "dashboard": true, "podMonitor": true, "proxyImage": "proxy:1"}))

// TestHostileOtherNamespace: in another namespace nothing is left of the default one. An admission policy that looks
// at a ServiceAccount of another namespace binds nobody: every agent could then write what is another node's.
func TestHostileOtherNamespace(t *testing.T) {
	const other = "elsewhere"
	for _, v := range []vals{everything, merge(everything, set("uninstall", true))} {
		all, notes := release{namespace: other}.render(t, v)
		if strings.Contains(notes, namespace) {
			t.Errorf("the notes name %s:\n%s", namespace, notes)
		}
		accounts := 0
		for id, object := range all {
			out, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(out), namespace) {
				t.Errorf("%s names %s", id, namespace)
			}
			of, namespaced := object["metadata"].(vals)["namespace"]
			if namespaced && of != other && of != "kube-node-lease" {
				t.Errorf("%s is in the namespace %v", id, of)
			}
			accounts += strings.Count(string(out), "system:serviceaccount:"+other+":diapause-")
		}
		if accounts != 6 { // four policies for agents; two accounts in the one for users
			t.Errorf("%d ServiceAccounts in admission policies, want 6", accounts)
		}
	}
}

// TestHostileAgentPolicies: whatever the namespace, each policy for agents looks at whom the agents' pods run as.
func TestHostileAgentPolicies(t *testing.T) {
	for _, of := range []string{namespace, "elsewhere"} {
		all, _ := release{namespace: of}.render(t, nil)
		account := podSpec(t, all["apps/v1 DaemonSet "+of+" diapause-agent"])["serviceAccountName"]
		if account == nil || all["v1 ServiceAccount "+of+" "+account.(string)] == nil {
			t.Fatalf("the agents run as %v, which the chart does not have", account)
		}
		for _, name := range []string{"pods", "snapshots", "triggers", "taking"} {
			policy := all["admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy  diapause-agent-"+name]
			out, err := yaml.Marshal(policy["spec"])
			if want := "'system:serviceaccount:" + of + ":" + account.(string) + "'"; err != nil ||
				!strings.Contains(string(out), want) {
				t.Errorf("diapause-agent-%s does not look at %s, %v", name, want, err)
			}
		}
	}
}

func podSpec(t *testing.T, object vals) vals {
	t.Helper()
	if object == nil {
		t.Fatal("there is no such object")
	}
	return object["spec"].(vals)["template"].(vals)["spec"].(vals)
}

// TestCapabilities: the policy for volumes has the version that the cluster serves. If it serves none, the policy is
// left out, nothing else is, and the notes say what is lost.
func TestCapabilities(t *testing.T) {
	const beta = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
	full, _ := release{}.render(t, nil)
	for name, c := range map[string]struct {
		release release
		want    string
	}{
		"v1":             {release{}, "v1"},
		"both":           {release{apis: []string{"apps/v1/Deployment", beta, mutating}}, "v1"},
		"beta":           {release{version: "v1.34.9", apis: []string{"apps/v1/Deployment", beta}}, "v1beta1"},
		"none":           {release{version: "v1.34.9", apis: []string{"apps/v1/Deployment"}}, ""},
		"turned off":     {release{version: "v1.37.2", apis: []string{"apps/v1/Deployment"}}, ""},
		"no cluster":     {release{version: "v1.36.0", apis: []string{"apps/v1"}}, "v1"},
		"no old cluster": {release{version: "v1.35.4", apis: []string{"apps/v1"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all, notes := c.release.render(t, nil)
			var got []string
			for _, object := range all {
				if kind := object["kind"]; kind == "MutatingAdmissionPolicy" || kind == "MutatingAdmissionPolicyBinding" {
					got = append(got, object["apiVersion"].(string))
				}
			}
			want := slices.Repeat([]string{"admissionregistration.k8s.io/" + c.want}, 2)
			if c.want == "" {
				want = nil
			}
			if !slices.Equal(got, want) || len(all) != len(full)-2+len(want) {
				t.Errorf("policies of %v, want %v; %d objects, and %d with v1", got, want, len(all), len(full))
			}
			if said := strings.Contains(notes, "WARNING: emptyDir volumes stay on the node"); said != (c.want == "") {
				t.Errorf("the notes say what is lost: %v\n%s", said, notes)
			}
		})
	}
}

// TestOldCluster: a cluster without ValidatingAdmissionPolicies, which keep agents to their own nodes, is refused.
func TestOldCluster(t *testing.T) {
	constraint, _ := values(t, "Chart.yaml")["kubeVersion"].(string)
	for version, want := range map[string]bool{
		"v1.29.9": false, "v1.29.9-gke.100": false, "v1.30.0": true, "v1.34.1+k3s1": true, "v1.36.0-eks-abc": true,
	} {
		if got := chartutil.IsCompatibleRange(constraint, version); got != want {
			t.Errorf("%s is accepted: %v, want %v", version, got, want)
		}
	}
}

// TestDefinitionsStay: Helm keeps the definitions, and with them all snapshots, when the release goes.
func TestDefinitionsStay(t *testing.T) {
	all, _ := release{}.render(t, everything)
	n := 0
	for id, object := range all {
		kept := object["metadata"].(vals)["annotations"] != nil &&
			object["metadata"].(vals)["annotations"].(vals)["helm.sh/resource-policy"] == "keep"
		if want := object["kind"] == "CustomResourceDefinition" || object["kind"] == "Namespace"; kept != want {
			t.Errorf("%s is kept: %v", id, kept)
		} else if kept {
			n++
		}
	}
	if n != 6 {
		t.Errorf("%d objects are kept, want five definitions and the namespace: %v", n, slices.Sorted(maps.Keys(all)))
	}
}

// TestProxyImage: a PodMonitor without an image for its sidecar is refused, and the error names the value.
func TestProxyImage(t *testing.T) {
	if _, err := (release{}).files(t.Context(), set("monitoring.podMonitor", true)); err == nil ||
		!strings.Contains(err.Error(), "monitoring.proxyImage") {
		t.Errorf("%v", err)
	}
}

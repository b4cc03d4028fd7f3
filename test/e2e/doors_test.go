package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/test/bed"
)

// tool returns what runs the tool on a node, through its agent's pod.
func (w *world) tool(n *bed.Node) func(args ...string) (string, error) {
	w.Helper()
	var agents corev1.PodList
	w.must(w.client.List(w.ctx, &agents, client.InNamespace(system),
		client.MatchingLabels{"app.kubernetes.io/name": "diapause-agent"}, client.MatchingFields{"spec.nodeName": n.Name}))
	if len(agents.Items) != 1 {
		w.Fatalf("node %s has %d agents", n.Name, len(agents.Items))
	}
	exec := []string{"--namespace=" + system, "exec", agents.Items[0].Name, "--container=agent", "--", "/usr/local/bin/diapause"}
	return func(args ...string) (string, error) { return w.Kubectl(w.ctx, append(exec, args...)...) }
}

// TestDoors: what is made on the node shows in the cluster, what is made in the cluster shows on the
// nodes, and what is removed on the node where it was made is gone from both.
func TestDoors(t *testing.T) {
	w := begin(t)
	here, there := w.tool(w.Node(0)), w.tool(w.Node(1))
	p := w.run(w.pod("web", on(w.Node(0))))
	made := w.checkpoint(p).name
	_, err := here("checkpoint", "--name=by-hand", w.namespace+"/web")
	w.must(err)
	w.replicated(made)
	w.replicated("by-hand")

	listed := func(tool func(args ...string) (string, error)) (names []string) {
		t.Helper()
		out, err := tool("ls", "--namespace="+w.namespace, "--output=json")
		w.must(err)
		var list struct {
			Snapshots []struct{ Name string } `json:"snapshots"`
		}
		w.must(json.Unmarshal([]byte(out), &list))
		for _, s := range list.Snapshots {
			names = append(names, s.Name)
		}
		return names
	}
	for _, tool := range []func(...string) (string, error){here, there} {
		if got := listed(tool); len(got) != 2 {
			t.Errorf("a node lists %q", got)
		}
	}
	for _, name := range []string{made, "by-hand"} {
		if _, err := there("rm", w.namespace+"/"+name); err == nil || !strings.Contains(err.Error(), "made on node "+w.Node(0).Name) {
			t.Errorf("rm on the other node: %v", err)
		}
		s := w.snapshot(name)
		_, err := here("rm", w.namespace+"/"+name)
		w.must(err)
		w.awaitGone(s)
	}
	if got := listed(here); len(got) > 0 {
		t.Errorf("its node still lists %q", got)
	}
}

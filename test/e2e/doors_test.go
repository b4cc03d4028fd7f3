package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/api/option"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/gcs"
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
	exec := []string{
		"--namespace=" + system, "exec", agents.Items[0].Name, "--container=agent", "--",
		"/usr/local/bin/diapause",
	}
	return func(args ...string) (string, error) { return w.Kubectl(w.ctx, append(exec, args...)...) }
}

// store opens the object store until the test ends.
func (w *world) store() *storage.Store {
	w.Helper()
	b, err := gcs.Open(w.ctx, bucket, "e2e", option.WithEndpoint("http://"+w.gcs.Address+"/storage/v1/"),
		option.WithoutAuthentication())
	w.must(err)
	w.Cleanup(func() { b.Close() })
	s, err := storage.Open(w.ctx, b, storage.Options{})
	w.must(err)
	return s
}

// key is how a snapshot of the namespace is stored.
func (w *world) key(name string) snapshot.Key {
	return snapshot.Key{Namespace: w.namespace, Name: name}
}

// TestDoors: what is made on the node shows in the cluster, what is made in the cluster shows on the
// nodes, and what is removed on the node where it was made is gone from both.
func TestDoors(t *testing.T) {
	t.Parallel()
	w := begin(t)
	here, there := w.tool(w.Node(0)), w.tool(w.Node(1))
	p := w.run(w.pod("web", on(w.Node(0))))
	made := w.checkpoint(p).name
	_, err := here("checkpoint", "--name=by-hand", w.namespace+"/web")
	w.must(err)
	w.replicated(made)
	w.replicated("by-hand")

	var system corev1.Namespace
	w.must(w.client.Get(w.ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	m, err := w.store().Manifest(w.ctx, w.key(made))
	w.must(err)
	if got, want := m.Meta.Origin.Cluster, string(system.UID); got != want {
		t.Errorf("the stored snapshot says that it is of cluster %q, want %q", got, want)
	}

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
		if _, err := there("rm", w.namespace+"/"+name); err == nil ||
			!strings.Contains(err.Error(), "made on node "+w.Node(0).Name) {
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

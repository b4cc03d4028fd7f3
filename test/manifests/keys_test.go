package manifests

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"diapause.dev/agent/kube"
	"diapause.dev/test/pages"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKeysPatch: the patch of docs/tasks/encryption-signing.md gives the keys to the agent and to the controller, which
// is not root.
func TestKeysPatch(t *testing.T) {
	patch, err := pages.Find("../..", "docs/tasks/encryption-signing.md", "patches:\n"+
		"- target: {kind: DaemonSet, name: diapause-agent}\n  patch: |-\n"+
		"    - op: add\n      path: /spec/template/spec/volumes/-\n      value: {name: keys")
	must(t, err)
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS(base)))
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [manifests]\n"+patch.Text), 0o600))
	out, err := api.Kubectl(t.Context(), "kustomize", dir)
	must(t, err)
	for want, times := range map[string]int{
		"- --encryption-keys=/etc/diapause/keys\n": 2, "mountPath: /etc/diapause/keys\n": 2,
		"secretName: diapause-keys\n": 2, "fsGroup: 65532\n": 1, "defaultMode: 288\n": 1, "defaultMode: 256\n": 1,
	} {
		if n := strings.Count(out, want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
}

// TestStoresOfController: with the controller's rights, rotate-keys finds all stores of the cluster.
func TestStoresOfController(t *testing.T) {
	configs := resource(t, api.Config, "", "podsnapshotstorageconfigs")
	made, err := configs.Create(t.Context(), object(t, "{kind: PodSnapshotStorageConfig, metadata: {name: keys}, "+
		"spec: {snapshotStorageConfig: {gcs: {bucket: my-bucket, path: snapshots}}}}"), metav1.CreateOptions{})
	must(t, err)
	defer func() { must(t, configs.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{})) }()
	stores, err := kube.StoresOf(t.Context(), controller(t), "dir:/own")
	if err != nil || !slices.Equal(stores, []string{"dir:/own", "gs://my-bucket/snapshots"}) {
		t.Errorf("%q, %v", stores, err)
	}
}

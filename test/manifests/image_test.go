package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImage: the image that an installer names in one place is the image of the installation and of what takes it
// away.
func TestImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.CopyFS(dir, os.DirFS(base)))
	const ours, theirs = "localhost/diapause-agent:1", "registry.example/diapause-agent@sha256:"
	digest := strings.Repeat("a", 64)
	must(t, os.WriteFile(filepath.Join(dir, "image/kustomization.yaml"), []byte( // as kustomize edit set image writes it
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n- digest: sha256:"+digest+
			"\n  name: localhost/diapause-agent\n  newName: registry.example/diapause-agent\n"), 0o600))
	for path, images := range map[string]int{".": 3, "uninstall": 2} {
		before, err := api.Kubectl(t.Context(), "kustomize", filepath.Join(base, path))
		must(t, err)
		after, err := api.Kubectl(t.Context(), "kustomize", filepath.Join(dir, path))
		must(t, err)
		if n := strings.Count(before, "image: "+ours+"\n"); n != images {
			t.Errorf("%s: %d containers have the image %s, want %d", path, n, ours, images)
		}
		if n := strings.Count(after, "image: "+theirs+digest+"\n"); n != images || strings.Contains(after, ours) {
			t.Errorf("%s: %d containers have the image that was named, want %d", path, n, images)
		}
	}
}

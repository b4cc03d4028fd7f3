package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/pages"
)

// TestRotateKeys turns encryption on and changes a key by the commands of docs/tasks/encryption-signing.md. The agents
// may not overwrite what is in the bucket, and the controller may. A snapshot from before is then restored by the new
// key alone.
func TestRotateKeys(t *testing.T) {
	w := begin(t)
	w.must(w.left())
	page := encryptionPage(t)
	dir := t.TempDir()
	run := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(w.ctx, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(script, "team-a", w.namespace))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+w.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}
	run(page.make)
	w.Cleanup(func() { w.withoutKeys(page.patches) })
	for object, patch := range page.patches {
		run("kubectl -n " + system + " patch " + object + " --type=json --patch='" + patch + "'")
	}
	w.must(w.rollout(w.ctx))

	p := w.run(w.pod("web", on(w.Node(0))))
	before, s := w.life(p), w.checkpoint(p).name
	w.replicated(s)
	if uid := w.snapshot(s).Annotations[podsnapshotv1.AnnotationSnapshotUID]; !strings.HasPrefix(uid, "encrypted-") {
		t.Fatalf("it is not encrypted: %s", uid)
	}
	for i, says := range []string{"", "may not replace 1 data keys", "1 data keys, 1 rewrapped", "FORMER KEY", ""} {
		out := run(page.change[i])
		t.Logf("step %d:\n%s", i+1, out)
		if !strings.Contains(out, says) {
			t.Errorf("step %d does not say %q", i+1, says)
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); says == "FORMER KEY" && len(f) == 3 && f[2] != "0" {
				t.Errorf("step %d: a former key is needed: %s", i+1, line)
			}
		}
		if strings.Contains(page.change[i], "kubectl apply") {
			w.awaitKeys(filepath.Join(dir, w.namespace))
		}
	}
	if out := run(page.only); !strings.Contains(out, s) || !strings.Contains(out, "encrypted-") {
		t.Errorf("the list does not have %s:\n%s", s, out)
	}
	w.awaitKeys(filepath.Join(dir, w.namespace))
	w.remove("web")
	w.restored(w.run(w.pod("web", on(w.Node(1)))), s, before)
	w.remove("web")
	w.discard(s) // while the controller has its key
}

// awaitKeys waits until all pods of the installation have a key file as it is here.
func (w *world) awaitKeys(file string) {
	w.Helper()
	want, err := os.ReadFile(file)
	w.must(err)
	w.kubectl("--namespace="+system, "annotate", "pods", "--all", "--overwrite", fmt.Sprintf("keys=%x", len(want)))
	w.eventually("the new key file", func() error {
		files := 0
		for _, n := range w.Nodes() {
			found, err := filepath.Glob(n.Path("/var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/keys/" + w.namespace))
			if err != nil {
				return err
			}
			for _, path := range found {
				if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
					return fmt.Errorf("%s is the former one: %w", path, err)
				}
				files++
			}
		}
		if files < 4 { // two agents, two controllers
			return fmt.Errorf("%d pods have it", files)
		}
		return nil
	})
}

// withoutKeys takes the keys away from the installation.
func (w *world) withoutKeys(patches map[string]string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for object := range patches {
		if _, err := w.Kubectl(ctx, "--namespace="+system, "rollout", "undo", object); err != nil {
			w.Error(err)
		}
	}
	if err := w.rollout(ctx); err != nil {
		w.Error(err)
	}
	err := w.Client.CoreV1().Secrets(system).Delete(ctx, "diapause-keys", metav1.DeleteOptions{})
	if err != nil {
		w.Error(err)
	}
}

// encryption is what docs/tasks/encryption-signing.md has an administrator do.
type encryption struct {
	make    string            // the keys and their Secret
	patches map[string]string // by object
	change  []string          // of a key, step by step
	only    string            // refuses what is not encrypted
}

// encryptionFile is the page.
const encryptionFile = "docs/tasks/encryption-signing.md"

func encryptionPage(t *testing.T) (e encryption) {
	t.Helper()
	e.make = pages.Text(t, "../..", encryptionFile, "openssl rand -hex 32 > default")
	var kustomization struct {
		Patches []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	patches := pages.Text(t, "../..", encryptionFile, "patches:\n- target: {kind: DaemonSet, name: diapause-agent}\n"+
		"  patch: |-\n    - op: add\n      path: /spec/template/spec/volumes/-\n      value: {name: keys")
	if err := yaml.Unmarshal([]byte(patches), &kustomization); err != nil {
		t.Fatal(err)
	}
	e.patches = make(map[string]string)
	for _, p := range kustomization.Patches {
		patch, err := yaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			t.Fatal(err)
		}
		e.patches[strings.ToLower(p.Target.Kind)+"/"+p.Target.Name] = string(patch)
	}
	e.change = strings.Split(pages.Text(t, "../..", encryptionFile, "# 1. The new key"), "\n# ")
	if len(e.patches) != 2 || len(e.change) != 5 {
		t.Fatalf("%s has changed: %+v", encryptionFile, e)
	}
	for i := range e.change { // the comment that begins a step has lost its sign
		e.change[i] = "# " + strings.TrimPrefix(e.change[i], "# ")
	}
	e.only = pages.Text(t, "../..", encryptionFile, "kubectl get podsnapshots -A -o custom-columns")
	return e
}

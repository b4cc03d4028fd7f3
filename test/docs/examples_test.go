package docs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// examples is the directory of manifests to begin with. The tests of manifests/ show them to an API server, too.
const examples = "docs/examples"

// ours are the kinds of Diapause that users create.
var ours = []string{"PodSnapshotStorageConfig", "PodSnapshotPolicy", "PodSnapshotManualTrigger", "SleepPolicy"}

// TestExamples: the page of the examples names each file. Objects of Kubernetes have only fields that exist; those of
// Diapause are shown to an API server.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, examples, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	links := pages(t)[examples+"/README.md"].links
	used := make(map[string]bool)
	for _, path := range files {
		name := filepath.Base(path)
		if !slices.Contains(links, name) {
			t.Errorf("%s/README.md does not name %s", examples, name)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range bytes.Split(b, []byte("\n---\n")) {
			kind, err := exampleOf(one)
			if used[kind] = true; err != nil {
				t.Errorf("%s: %s: %v", name, kind, err)
			}
		}
	}
	for _, kind := range ours {
		if !used[kind] {
			t.Errorf("no example has a %s", kind)
		}
	}
}

// exampleOf returns the kind of an object, and what is wrong with it.
func exampleOf(manifest []byte) (kind string, err error) {
	var o struct{ Kind string }
	if err := yaml.Unmarshal(manifest, &o); err != nil {
		return "", err
	}
	if slices.Contains(ours, o.Kind) {
		return o.Kind, nil
	}
	into := map[string]any{
		"Pod": new(corev1.Pod), "StatefulSet": new(appsv1.StatefulSet), "Deployment": new(appsv1.Deployment),
	}[o.Kind]
	if into == nil {
		return o.Kind, errors.New("no test knows this kind")
	}
	return o.Kind, yaml.UnmarshalStrict(manifest, into)
}

// TestExampleChecks: an example that is wrong is found.
func TestExampleChecks(t *testing.T) {
	for manifest, want := range map[string]string{
		`{kind: Pod, spec: {container: []}}`: "unknown field",
		`{kind: Service}`:                    "no test knows",
	} {
		if _, err := exampleOf([]byte(manifest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", manifest, err, want)
		}
	}
}

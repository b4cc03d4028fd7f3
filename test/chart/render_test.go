package chart

import (
	"bytes"
	"context"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	dir       = "../../charts/diapause" // the chart
	manifests = "../../manifests"
	namespace = "diapause-system" // of manifests/
	mutating  = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
)

// vals are values that a user gives.
type vals = map[string]any

// release is for what the chart is rendered. Its zero value stands for the namespace of manifests/, and for a cluster
// that serves all that Diapause needs.
type release struct {
	namespace string
	version   string   // of Kubernetes
	apis      []string // those that matter, as discovery names them
}

// objects are those of an installation, by version, kind, namespace and name.
type objects map[string]vals

// warnings is what Helm has warned of, which it does by the log alone.
var warnings bytes.Buffer

func init() { log.SetOutput(&warnings) }

// files renders all templates of the chart, by their paths seen from its directory.
func (r release) files(ctx context.Context, v vals) (map[string]string, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	if r.namespace == "" {
		r.namespace = namespace
	}
	if r.version == "" {
		r.version = "v1.36.3"
	}
	if r.apis == nil {
		r.apis = []string{"apps/v1/Deployment", mutating}
	}
	kube, err := common.ParseKubeVersion(r.version)
	if err != nil {
		return nil, err
	}
	caps := &common.Capabilities{KubeVersion: *kube, APIVersions: r.apis}
	options := common.ReleaseOptions{Name: "diapause", Namespace: r.namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, v, options, caps)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, all)
	files := map[string]string{}
	for path, text := range rendered {
		files[strings.TrimPrefix(path, "diapause/")] = text
	}
	return files, err
}

// render renders the objects of the chart, and its notes.
func (r release) render(t *testing.T, v vals) (objects, string) {
	t.Helper()
	warnings.Reset()
	files, err := r.files(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	if warnings.Len() > 0 {
		t.Error(&warnings)
	}
	notes := files["templates/NOTES.txt"]
	delete(files, "templates/NOTES.txt")
	all := objects{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all.add(t, path, files[path])
	}
	return all, notes
}

// add adds the objects of a text. It fails for one that is there twice.
func (o objects) add(t *testing.T, where, text string) {
	t.Helper()
	for _, doc := range strings.Split("\n"+text, "\n---\n") {
		var object vals
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatalf("%s: %v\n%s", where, err, doc)
		}
		if len(object) == 0 {
			continue
		}
		name := id(object)
		if o[name] != nil {
			t.Errorf("%s: %s is there twice", where, name)
		}
		o[name] = object
	}
}

// id names an object.
func id(object vals) string {
	meta, _ := object["metadata"].(vals)
	parts := []string{}
	for _, part := range []any{object["apiVersion"], object["kind"], meta["namespace"], meta["name"]} {
		text, _ := part.(string)
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// values parses a file of values.
func values(t *testing.T, path string) (v vals) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, path))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// set makes values of which the one at a path, such as image.tag, is given.
func set(path string, value any) vals {
	names := strings.Split(path, ".")
	for _, name := range slices.Backward(names) {
		value = vals{name: value}
	}
	return value.(vals)
}

// merge adds values to others.
func merge(all ...vals) vals {
	out := vals{}
	for _, v := range slices.Backward(all) {
		out = util.CoalesceTables(out, v)
	}
	return out
}

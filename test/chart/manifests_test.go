package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestSameAsManifests: with the default values the chart installs what kubectl apply -k installs, object by object. The
// namespace is Helm's, unless the chart is asked to manage it.
func TestSameAsManifests(t *testing.T) {
	for name, c := range map[string]struct {
		values       vals
		kustomize    objects
		missing, new []string
	}{
		"default":   {nil, kustomized(t, ""), []string{"v1 Namespace  diapause-system"}, nil},
		"namespace": {set("namespace.manage", true), kustomized(t, ""), nil, nil},
		"podmonitor": {
			merge(set("namespace.manage", true), set("monitoring", vals{"podMonitor": true, "proxyImage": "kube-rbac-proxy"})),
			kustomized(t, "components/podmonitor"), nil, nil,
		},
		"alerts": {
			merge(set("namespace.manage", true), set("monitoring.alerts", true)),
			kustomized(t, "components/alerts"), nil, nil,
		},
		"dashboard": {
			merge(set("namespace.manage", true), set("monitoring.dashboard", true)),
			kustomized(t, "components/dashboard"), nil, nil,
		},
		"apparmor": {
			merge(set("namespace.manage", true), set("controller.appArmor", true)),
			kustomized(t, "components/apparmor"), nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := release{}.render(t, c.values)
			for _, id := range c.missing {
				if c.kustomize[id] == nil {
					t.Errorf("manifests/ has no %s", id)
				}
				delete(c.kustomize, id)
			}
			for _, d := range differences(c.kustomize, got.installed()) {
				t.Error(d)
			}
		})
	}
}

// TestUninstallAsManifests: with uninstall the agents make way for what manifests/uninstall installs.
func TestUninstallAsManifests(t *testing.T) {
	want := kustomized(t, "")
	delete(want, "v1 Namespace  diapause-system")
	delete(want, "apps/v1 DaemonSet diapause-system diapause-agent")
	maps.Copy(want, built(t, filepath.Join(manifests, "uninstall")))
	got, notes := release{}.render(t, set("uninstall", true))
	for _, d := range differences(want, got.installed()) {
		t.Error(d)
	}
	if !strings.Contains(notes, "daemonset/diapause-uninstall") || !strings.Contains(notes, "helm uninstall diapause") {
		t.Errorf("the notes do not say how to go on:\n%s", notes)
	}
}

// TestDifferences: the comparison sees an object that is missing, one too many, and each field that differs.
func TestDifferences(t *testing.T) {
	got, _ := release{}.render(t, set("namespace.manage", true))
	want := kustomized(t, "")
	delete(got, "node.k8s.io/v1 RuntimeClass  gvisor")
	got["v1 ConfigMap  more"] = vals{}
	agent := got["apps/v1 DaemonSet diapause-system diapause-agent"]
	pod := agent["spec"].(vals)["template"].(vals)["spec"].(vals)
	pod["hostPID"] = false
	pod["hostNetwork"] = true
	pod["tolerations"] = append(pod["tolerations"].([]any), vals{})
	delete(pod, "serviceAccountName")
	if d := differences(want, got.installed()); len(d) != 6 {
		t.Errorf("%d differences, want 6:\n%s", len(d), strings.Join(d, "\n"))
	}
}

// kustomized builds manifests/ with a component.
func kustomized(t *testing.T, component string) objects {
	t.Helper()
	if component == "" {
		return built(t, manifests)
	}
	overlay := t.TempDir()
	base, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(overlay, base); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", base, filepath.Join(base, component))
	if err := filesys.MakeFsOnDisk().WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	return built(t, overlay)
}

// built builds a kustomization.
func built(t *testing.T, path string) objects {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	all.add(t, path, string(text))
	if len(all) == 0 {
		t.Fatalf("%s: no objects", path)
	}
	return all
}

// differences tells in what two installations differ. What is said to Helm alone does not count.
func differences(want, got objects) (out []string) {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] == nil {
			out = append(out, "the chart has no "+id)
			continue
		}
		out = append(out, differing(id, want[id], unkept(got[id]))...)
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if want[id] == nil {
			out = append(out, "manifests/ has no "+id)
		}
	}
	return out
}

// unkept removes the annotation for Helm.
func unkept(object vals) vals {
	meta := object["metadata"].(vals)
	if of, ok := meta["annotations"].(vals); ok {
		delete(of, "helm.sh/resource-policy")
		if len(of) == 0 {
			delete(meta, "annotations")
		}
	}
	return object
}

// named returns the fields of a mapping, or the members of a list by their names. The order of containers and volumes
// does not matter.
func named(value any) (vals, bool) {
	list, ok := value.([]any)
	if !ok {
		m, ok := value.(vals)
		return m, ok
	}
	out := vals{}
	for _, member := range list {
		m, _ := member.(vals)
		name, ok := m["name"].(string)
		if !ok || out[name] != nil {
			return nil, false
		}
		out[name] = member
	}
	return out, len(out) > 0
}

// differing tells in which fields two values differ.
func differing(path string, want, got any) (out []string) {
	w, ok := named(want)
	g, same := named(got)
	if !ok || !same {
		if !reflect.DeepEqual(want, got) {
			return []string{fmt.Sprintf("%s: manifests/ has %v, the chart %v", path, want, got)}
		}
		return nil
	}
	keys := maps.Clone(w)
	maps.Copy(keys, g)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, inWant := w[key]
		b, inGot := g[key]
		switch below := path + "." + key; {
		case !inWant:
			out = append(out, fmt.Sprintf("%s: manifests/ has none, the chart %v", below, b))
		case !inGot:
			out = append(out, fmt.Sprintf("%s: manifests/ has %v, the chart none", below, a))
		default:
			out = append(out, differing(below, a, b)...)
		}
	}
	return out
}

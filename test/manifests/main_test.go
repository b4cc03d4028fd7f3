// Package manifests tests the Kubernetes objects of an installation on a real API server: what the
// definitions accept and refuse and in which words, and what the agents' permissions reach.
package manifests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// base is the directory of the manifests.
const base = "../../manifests"

var api *bed.API

func TestMain(m *testing.M) {
	bed.MainWith(func() (int, error) { return run(m) }, tools.Kubernetes)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if api, err = bed.StartAPI(ctx); err != nil {
		return 1, err
	}
	defer api.Close()
	if err := installed(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// installed installs as a user does, twice: the second time changes nothing.
func installed(ctx context.Context) error {
	if _, err := api.Kubectl(ctx, "apply", "--kustomize="+base); err != nil {
		return err
	}
	out, err := api.Kubectl(ctx, "apply", "--kustomize="+base)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
			return fmt.Errorf("applied again: %s", line)
		}
	}
	// The selector of a PodDisruptionBudget is replaced, so kubectl sends it each time, and says that it was configured.
	budget, err := api.Client.PolicyV1().PodDisruptionBudgets(system).Get(ctx, "diapause-controller", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if budget.Generation != 1 {
		return fmt.Errorf("applied again: the PodDisruptionBudget is of generation %d, want 1", budget.Generation)
	}
	_, err = api.Kubectl(ctx, "wait", "--for=condition=Established", "--all", "crd")
	return err
}

// resource returns a client of one of our resources as somebody sees it.
func resource(t *testing.T, who *rest.Config, namespace, plural string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(who)
	must(t, err)
	of := schema.GroupVersion{Group: "podsnapshot.gke.io", Version: "v1"}
	if plural == "sleeppolicies" {
		of = sleepv1alpha1.GroupVersion
	}
	r := c.Resource(of.WithResource(plural))
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}

// object parses a manifest, which names the kind in short.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(manifest), &o.Object))
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion("podsnapshot.gke.io/v1")
	}
	return o
}

// create makes an object of a kind as the administrator, to be deleted when the test ends.
func create(t *testing.T, namespace, plural string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	r := resource(t, api.Config, namespace, plural)
	made, err := r.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := r.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Log(err)
		}
	})
	return made
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that err says all of want, or that there is none if want is empty.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		must(t, err)
		return
	}
	if err == nil {
		t.Fatalf("accepted, want it refused with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("refused with\n%v\nwhich does not say %q", err, w)
		}
	}
}

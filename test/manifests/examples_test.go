package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExamples: the API server accepts the objects of docs/examples. Those of Kubernetes are read in test/docs.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	must(t, err)
	accepted := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		must(t, err)
		for one := range strings.SplitSeq(string(b), "\n---\n") {
			o := object(t, one)
			plural := plurals[o.GetKind()]
			if plural == "" {
				continue
			}
			_, err := resource(t, api.Config, namespace(o.GetKind()), plural).Create(t.Context(), o,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			accepted++
		}
	}
	if accepted < 8 {
		t.Errorf("%d objects", accepted)
	}
}

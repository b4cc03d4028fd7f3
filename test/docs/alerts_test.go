package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	alertsFile = "manifests/components/alerts/alerts.yaml"
	alertsPage = "docs/operations/monitoring.md"
	alertCases = "test/alerts/testdata/cases.yaml"
)

// TestAlerts: the page on monitoring has a section for each alert and no other, an alert's annotation leads there, and
// there is a case that fires it.
func TestAlerts(t *testing.T) {
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Annotations struct{ Summary, Runbook string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(readAll(t, alertsFile), &file); err != nil {
		t.Fatal(err)
	}
	cases := string(readAll(t, alertCases))
	var names []string
	for _, g := range file.Spec.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			if want := alertsPage + "#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want {
				t.Errorf("the runbook of %s is %q, want %q", r.Alert, r.Annotations.Runbook, want)
			}
			if r.Expr == "" || r.Annotations.Summary == "" {
				t.Errorf("%s has no expression or no summary", r.Alert)
			}
			if !strings.Contains(cases, "\n- name: "+r.Alert+"\n") {
				t.Errorf("%s has no case that fires %s", alertCases, r.Alert)
			}
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (Diapause\w+)$`).FindAllSubmatch(readAll(t, alertsPage), -1) {
		sections = append(sections, string(m[1]))
	}
	if len(names) < 10 || !slices.Equal(names, sections) {
		t.Errorf("alerts: %q\n%s has sections for %q", names, alertsPage, sections)
	}
}

// readAll returns a file of the repository.
func readAll(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

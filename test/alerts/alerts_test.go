// Package alerts has Prometheus' own tool read the alerts of manifests/components/alerts, and fire each of them.
// Building the tool takes some minutes, so this runs only if asked: make alerts.
package alerts

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"diapause.dev/test/tools"
)

const (
	alerts = "../../manifests/components/alerts/alerts.yaml"
	// cases say for each alert which series fire it, and that it is quiet on a node where all is well.
	cases = "testdata/cases.yaml"
)

var asked = flag.Bool("fire", false, "run the test, which needs promtool")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*asked {
		fmt.Println("no alert is fired without -fire: see make alerts")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFire: promtool accepts the alerts, and each fires in its case and in no other.
func TestFire(t *testing.T) {
	promtool, err := tools.Promtool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, groups(t))
	text, err := os.ReadFile(cases)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cases.yaml"), text)
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", rules},
		{"test", "rules", filepath.Join(dir, "cases.yaml")},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// groups returns the rules as Prometheus reads them.
func groups(t *testing.T) []byte {
	t.Helper()
	var object struct{ Spec map[string]any }
	text, err := os.ReadFile(alerts)
	if err == nil {
		err = yaml.Unmarshal(text, &object)
	}
	if err != nil || len(object.Spec) == 0 {
		t.Fatalf("%s: %d fields, %v", alerts, len(object.Spec), err)
	}
	if text, err = yaml.Marshal(object.Spec); err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

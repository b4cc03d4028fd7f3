package v1_test

import (
	"os/exec"
	"testing"
)

// TestGenerated: the definitions and the deep copies are up to date with the types.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	run(t, "go", "tool", "controller-gen", "crd", "object", "paths=.", "output:crd:dir="+dir+"/crds", "output:object:dir="+
		dir)
	const crds = "../../../manifests/crds"
	run(t, "diff", "-r", "--exclude=diapause.dev_*", dir+"/crds", crds)
	run(t, "diff", dir+"/zz_generated.deepcopy.go", "zz_generated.deepcopy.go")
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Errorf("run make generate: %v\n%s", err, out)
	}
}

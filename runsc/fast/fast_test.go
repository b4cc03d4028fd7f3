package fast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/runsc/fast"
)

// TestSameAsGVisors runs pkg/difftest, which compares our package state with gVisor's on random graphs, and on altered
// streams, and tests what is ours alone. gVisor's own tests of the package are not in its Go module.
func TestSameAsGVisors(t *testing.T) {
	source := output(t, "", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor")
	dir := filepath.Join(t.TempDir(), "gvisor")
	if err := fast.Compare(source, dir); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"./pkg/difftest", "-run", "^(Test|Fuzz)", "-graphs=" + graphs, short},
		{"./pkg/sentry/pgalloc/..."},
		{"./pkg/sentry/state/stateipc"},
		{"./pkg/tcpip/transport/..."},
		{"./runsc/specutils"},
	} {
		t.Log(output(t, dir, append([]string{
			"test", "-trimpath", "-mod=mod", "-count=1", "-timeout=40m", "-v",
			addressChecks,
		}, args...)...))
	}
}

// output runs the go command in dir.
func output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestTreeFailsOnAnotherVersion(t *testing.T) {
	if err := fast.Tree(t.TempDir(), filepath.Join(t.TempDir(), "gvisor")); err == nil {
		t.Error("an empty module is taken for gVisor")
	}
}

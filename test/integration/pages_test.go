package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/pages"
)

// The pages whose blocks are run on a node without Kubernetes.
const (
	readme      = "README.md"
	installNode = "docs/install/node.md"
	tasksNode   = "docs/tasks/node.md"
)

// TestPages does what the pages say of a node without Kubernetes: containerd and runsc are configured by them, and
// their commands are run.
func TestPages(t *testing.T) {
	n := start(t)
	n.agent.Kill()
	n.configure()
	n.startAgent()
	n.mustCLI("doctor")

	n.workload("counter", "serve", "--mib", "8")
	n.script(readme, "diapause checkpoint --name night counter")
	n.branches(3)
	n.mustCLI("wake", "counter")
	n.script(tasksNode, "diapause checkpoint counter", "night", "evening")
	n.branches(6)
}

// configure has containerd run pods as a page says, with the programs of the bed in place of those in /usr/local/bin.
func (n *node) configure() {
	n.Helper()
	const file = "/etc/containerd/config.toml"
	const first = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.diapause]"
	config, err := os.ReadFile(file)
	if err != nil {
		n.Fatal(err)
	}
	before, _, ok := strings.Cut(string(config), first)
	if !ok {
		n.Fatalf("%s has no handler of the bed's", file)
	}
	for path, text := range map[string]string{
		file:          before + pages.Text(n, "../..", installNode, first),
		bed.RunscFile: pages.Text(n, "../..", installNode, "binary_name", "/usr/local/bin/runsc", n.bed.Bin.Path("runsc")),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			n.Fatal(err)
		}
	}
	if err := n.bed.Containerd.Restart(n.ctx); err != nil {
		n.Fatal(err)
	}
}

// script runs a block with bash.
func (n *node) script(page, begins string, pairs ...string) {
	n.Helper()
	script := pages.Text(n, "../..", page, begins, pairs...)
	out, err := exec.CommandContext(n.ctx, "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
	if n.Logf("%s\n%s", script, out); err != nil {
		n.Fatal(err)
	}
}

// branches checks that so many pods run that were restored from snapshots of the pod counter.
func (n *node) branches(want int) {
	n.Helper()
	all, err := n.bed.Pods(n.ctx)
	if err != nil {
		n.Fatal(err)
	}
	var found []string
	for _, p := range all {
		if strings.HasPrefix(p.Name, "counter-") {
			found = append(found, p.Name)
		}
	}
	if len(found) != want {
		n.Errorf("the restored pods are %q, want %d", found, want)
	}
}

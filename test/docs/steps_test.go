package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	code "diapause.dev/test/pages"
)

// step is a block on a page for users.
type step struct {
	page, begins string
	by           string // the test that does as it says: its directory and its name
	why          string // no test does
}

// steps are all blocks of commands, manifests and configuration on the pages for users.
var steps = []step{
	{page: "README.md", begins: "kubectl apply -k manifests/", by: "test/daemonset.TestDaemonSet"},
	{page: "README.md", begins: "diapause checkpoint --name night counter", by: "test/integration.TestPages"},
	{page: "docs/quickstart.md", begins: "make demo", why: "it is a program of its own, which checks itself"},
	{page: "docs/quickstart.md", begins: "kubectl apply -k manifests/", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/quickstart.md", begins: "apiVersion: podsnapshot.gke.io/v1", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/quickstart.md", begins: "apiVersion: v1", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/quickstart.md", begins: "kubectl apply -f counter.yaml", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/install/cluster.md", begins: "make release", why: "TestRelease builds it. To push it takes a registry"},
	{page: "docs/install/cluster.md", begins: "imports =", why: "the containerd of each bed has this line"},
	{page: "docs/install/cluster.md", begins: "(cd manifests/image", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/install/cluster.md", begins: "helm install", by: "test/helm.TestAdoption"},
	{page: "docs/install/node.md", begins: "make release\n", by: "test/tools/release.TestRelease"},
	{page: "docs/install/node.md", begins: "[plugins.", by: "test/integration.TestPages"},
	{page: "docs/install/node.md", begins: "binary_name", by: "test/integration.TestPages"},
	{page: "docs/install/node.md", begins: "systemd-run", why: "beds have no systemd"},
	{page: "docs/install/stores.md", begins: "kubectl -n", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/install/stores.md", begins: "volumes:", by: "test/e2e.TestS3"},
	{page: "docs/tasks/access.md", begins: "kubectl -n team-a create rolebinding", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/access.md", begins: "kubectl label namespace", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/application.md", begins: "exec 3<>", by: "test/e2e.TestWorkloadSaves"},
	{page: "docs/tasks/encryption-signing.md", begins: "openssl rand", by: "test/e2e.TestRotateKeys"},
	{page: "docs/tasks/encryption-signing.md", begins: "# 1. The new key", by: "test/e2e.TestRotateKeys"},
	{page: "docs/tasks/encryption-signing.md", begins: "kubectl get podsnapshots -A", by: "test/e2e.TestRotateKeys"},
	{page: "docs/tasks/encryption-signing.md", begins: "openssl genpkey", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/encryption-signing.md", begins: "openssl pkey", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/node.md", begins: "diapause checkpoint counter", by: "test/integration.TestPages"},
	{page: "docs/tasks/sleep.md", begins: "kubectl annotate pod", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/sleep.md", begins: "apiVersion: diapause.dev/v1alpha1", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/sleep.md", begins: "ignore:\n", by: "test/e2e.TestIgnoredTraffic"},
	{page: "docs/tasks/snapshots.md", begins: "kubectl get", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/tasks/termination.md", begins: "kubectl annotate", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/adopt.md", begins: "cat old/trusted.pem", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/adopt.md", begins: "cat old/default", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/recovery.md", begins: "kubectl get podsnapshots", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/recovery.md", begins: "kubectl patch podsnapshot", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/recovery.md", begins: "kubectl -n diapause-system", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/troubleshooting.md", begins: "kubectl -n", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/upgrade.md", begins: ".cache/release", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/upgrade.md", begins: "kubectl get pods", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/upgrade.md", begins: "kubectl apply -k manifests/", by: "test/daemonset.TestDaemonSet"},
	{page: "docs/operations/upgrade.md", begins: "kubectl delete podsnapshots", by: "test/daemonset.TestDaemonSet"},
}

// several are blocks whose first line stands more than once on their page.
var several = []step{
	{page: "docs/operations/adopt.md", begins: "diapause-agent adopt", by: "test/e2e.TestAdopt"},
	{page: "docs/tasks/encryption-signing.md", begins: "patches:", by: "test/e2e.TestRotateKeys"},
}

// TestSteps: each block on a page for users is done by a test, or says why not. A test of that name is there, and its
// package looks for the block by what it begins with.
func TestSteps(t *testing.T) {
	done := make([]bool, len(steps)+len(several))
	all := slices.Concat(steps, several)
	for path := range pagesForUsers(t) {
		blocks, err := code.Blocks(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if !slices.Contains([]string{"sh", "yaml", "toml"}, b.Language) {
				continue
			}
			i := slices.IndexFunc(all, func(s step) bool { return s.page == path && strings.HasPrefix(b.Text, s.begins) })
			if i < 0 {
				t.Errorf("%s:%d: no test does what this block says: add it to one, or say here why not", path, b.Line)
				continue
			}
			done[i] = true
			if why := all[i].unproven(t, b); why != "" {
				t.Errorf("%s:%d: %s", path, b.Line, why)
			}
		}
	}
	for i, s := range all {
		if !done[i] {
			t.Errorf("%s has no block that begins with %q", s.page, s.begins)
		}
	}
}

// pagesForUsers are the pages with steps.
func pagesForUsers(t *testing.T) map[string]*page {
	all := pages(t)
	for path := range all {
		dir := filepath.Dir(path)
		if path != "README.md" && path != "docs/quickstart.md" && dir != "docs/install" && dir != "docs/tasks" &&
			dir != "docs/operations" {
			delete(all, path)
		}
	}
	return all
}

// unproven returns why a step is not seen to be done by its test.
func (s step) unproven(t *testing.T, b code.Block) string {
	t.Helper()
	if s.by == "" {
		return ""
	}
	dir, name, _ := strings.Cut(s.by, ".")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	named, found := false, false
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				named = named || n.Name.Name == name
			case *ast.BasicLit:
				text, _ := strconv.Unquote(n.Value)
				found = found || len(text) > 6 && strings.HasPrefix(b.Text, text)
			}
			return true
		})
	}
	switch {
	case !named:
		return s.by + " does not exist"
	case !found:
		return s.by + " does not look for this block"
	}
	return ""
}

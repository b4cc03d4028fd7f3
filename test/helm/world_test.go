package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/cri"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

const (
	chart = "../../charts/diapause"
	// limit is for a test, waitLimit for one command that waits.
	limit     = 15 * time.Minute
	waitLimit = 4 * time.Minute
	// explainLimit ends what is asked of the cluster after a failure.
	explainLimit = 30 * time.Second
)

// world is a cluster for one test, and a release in it.
type world struct {
	*testing.T
	*bed.Cluster
	ctx       context.Context
	namespace string // of the release
	values    string // file of the bed's values
}

// begin starts a cluster whose node has the agent's image, and nothing of Diapause installed.
func begin(t *testing.T, namespace string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c, err := bed.StartCluster(ctx, bed.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, Cluster: c, ctx: ctx, namespace: namespace, values: filepath.Join(t.TempDir(), "values.yaml")}
	t.Cleanup(w.end)
	w.must(os.WriteFile(w.values, []byte("install: {restart: signal, runscFlags: {directfs: false}}\n"), 0o644))
	w.kubectl("delete", "runtimeclass", bed.Diapause) // the chart brings it
	w.importAgent(images.Agent)
	return w
}

func (w *world) end() {
	if w.Failed() {
		w.explain()
	}
	if err := w.Close(); err != nil {
		w.Error(err)
	}
}

// helm runs Helm, and returns all that it prints.
func (w *world) helm(args ...string) (string, error) {
	cmd := exec.CommandContext(w.ctx, w.Bin.Path("helm"), append(args, "--namespace="+w.namespace,
		"--kubeconfig="+w.Kubeconfig)...)
	cmd.Env = append(os.Environ(), "HOME="+w.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	w.Logf("%s helm %s: %v", time.Now().Format(time.TimeOnly), strings.Join(args, " "), err)
	return string(out), err
}

// bash runs a block of a page, as a user does in the repository.
func (w *world) bash(script string) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "HOME="+w.TempDir(), "KUBECONFIG="+w.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%v\n%s\n%s", err, script, out)
	}
}

// succeeds is helm, which must succeed.
func (w *world) succeeds(args ...string) string {
	w.Helper()
	out, err := w.helm(args...)
	w.must(err)
	return out
}

// refused is helm, which must fail and say all of want.
func (w *world) refused(args []string, want ...string) {
	w.Helper()
	_, err := w.helm(args...)
	if err == nil {
		w.Fatalf("helm %s succeeds", strings.Join(args, " "))
	}
	for _, s := range want {
		if !strings.Contains(err.Error(), s) {
			w.Errorf("it does not say %q: %v", s, err)
		}
	}
}

// ready waits until the agents and the controllers are. The agent's installation restarts containerd.
func (w *world) ready(change func()) {
	w.Helper()
	wait := w.Node(0).Containerd.Supervise(w.ctx)
	change()
	for _, name := range []string{"daemonset/diapause-agent", "deployment/diapause-controller"} {
		w.rollout(name)
	}
	w.must(wait())
	w.installed(true)
}

func (w *world) rollout(name string) {
	w.Helper()
	w.kubectl("--namespace="+w.namespace, "rollout", "status", name, "--timeout="+waitLimit.String())
}

// installed checks whether containerd runs with the handler of an installation.
func (w *world) installed(want bool) {
	w.Helper()
	client, err := cri.Dial(w.ctx, cri.Options{Address: w.Node(0).Path(bed.ContainerdSocket)})
	w.must(err)
	defer client.Close()
	handlers, err := client.Handlers(w.ctx)
	w.must(err)
	if is := handlers["gvisor"].Path == "/opt/diapause/bin/containerd-shim-diapause-v1"; is != want {
		w.Errorf("the handler gvisor is %+v; ours: %v, want %v", handlers["gvisor"], is, want)
	}
}

// importAgent gives the node the image of the agent under a name.
func (w *world) importAgent(name string) {
	w.Helper()
	archive := filepath.Join(w.TempDir(), "agent.tar")
	f, err := os.Create(archive)
	w.must(err)
	w.must(images.WriteAgentAs(f, name, w.Bin, nil))
	w.must(f.Close())
	w.must(w.Import(w.ctx, archive))
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := w.Kubectl(w.ctx, args...)
	w.must(err)
	return out
}

// until waits until a command of kubectl prints what is wanted.
func (w *world) until(want string, args ...string) {
	w.Helper()
	w.must(bed.Until(w.ctx, func() error {
		out, err := w.Kubectl(w.ctx, args...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("%q says %q, want %q", args, out, want)
		}
		return err
	}))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// explain logs what there is to know of a cluster in which something went wrong.
func (w *world) explain() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), explainLimit)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods,podsnapshots", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces"},
		{"--namespace=" + w.namespace, "describe", "pods"},
		{
			"--namespace=" + w.namespace, "logs", "--selector=app.kubernetes.io/part-of=diapause", "--all-containers",
			"--prefix", "--tail=-1",
		},
	} {
		out, err := w.Kubectl(ctx, args...)
		w.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

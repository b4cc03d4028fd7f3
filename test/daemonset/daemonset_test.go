// Package daemonset tests the installation as a user makes it, in a cluster: the DaemonSet of
// manifests/ puts the runtime on the node and runs an agent that has all it needs and is not
// privileged, and the one of manifests/uninstall takes the runtime away again.
package daemonset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/cri"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

func TestMain(m *testing.M) { bed.Main(m, tools.Kubernetes) }

// limit ends what the test waits for.
const limit = 5 * time.Minute

func TestDaemonSet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := bed.StartCluster(ctx, bed.ClusterOptions{})
	must(t, err)
	defer func() {
		if t.Failed() {
			t.Log(explain(ctx, c))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	importAgent(ctx, t, c)
	r := &reader{T: t, ctx: ctx, c: c, dir: t.TempDir()}
	r.install()
	installed(ctx, t, c.Node(0), true)
	r.start()
	r.use()

	// With a grace period of 0 the API server forgets a deleted pod at once, and kubelet may take it,
	// which it has yet to end, for the next one of its name.
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {%s}}, ` +
		`spec: {runtimeClassName: gvisor, terminationGracePeriodSeconds: 1,
		containers: [{name: c, image: "` + images.Busybox + `", command: ` +
		`[sh, -c, "date +%%N > /tmp/born; exec sleep 1000"]}]}}`
	must(t, c.Apply(ctx, fmt.Sprintf(pod, "")))
	kubectl(ctx, t, c, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	born := kubectl(ctx, t, c, "exec", "web", "--", "cat", "/tmp/born")
	confined(ctx, t, c.Node(0))
	powerless(ctx, t, c.Node(0))
	diapause(ctx, t, c, "checkpoint", "--name=s", "default/web")
	diapause(ctx, t, c, "checkpoint", "--stop", "--name=stopped", "default/web")
	r.prints(diapause(ctx, t, c, "verify", "default/stopped"), r.fingerprint())
	kubectl(ctx, t, c, "delete", "pod", "web", "--wait")
	must(t, c.Apply(ctx, fmt.Sprintf(pod, "diapause.dev/restore-from: default/s, diapause.dev/on-restore-failure: Fail")))
	kubectl(ctx, t, c, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	if again := kubectl(ctx, t, c, "exec", "web", "--", "cat", "/tmp/born"); again != born {
		t.Errorf("the pod was born at %q, and its restored self at %q", born, again)
	}
	diapause(ctx, t, c, "doctor")
	uninstall(ctx, t, c, r)
}

// uninstall takes everything away: it waits for the pod that runs, and then leaves nothing.
func uninstall(ctx context.Context, t *testing.T, c *bed.Cluster, r *reader) {
	t.Helper()
	if out := kubectl(ctx, t, c, "get", "podsnapshots", "--output=name"); !strings.Contains(out, "/s\n") ||
		!strings.Contains(out, "/stopped\n") {
		t.Errorf("of the checkpoints made on the node the cluster shows %q", out)
	}
	r.uninstall(func() {
		must(t, bed.Until(ctx, func() error {
			out, err := c.Kubectl(ctx, "--namespace=diapause-system", "logs", "daemonset/diapause-uninstall",
				"--container=uninstall")
			if err == nil && !strings.Contains(out, "delete default/web first") {
				err = fmt.Errorf("the log says %q", out)
			}
			return err
		}))
		kubectl(ctx, t, c, "delete", "pod", "web", "--wait")
	})
	if left, err := filepath.Glob(c.Node(0).Path("/opt/diapause") + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// confined checks what the kernel says of the agent's process: it has the capabilities
// CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, gets no others, and is under a seccomp profile.
func confined(ctx context.Context, t *testing.T, n *bed.Node) {
	t.Helper()
	pids, err := n.Agents(ctx)
	must(t, err)
	if len(pids) != 1 {
		t.Fatalf("the agents are %q", pids)
	}
	out, err := n.Exec(ctx, "cat", "/proc/"+pids[0]+"/status")
	must(t, err)
	for _, want := range []string{
		"CapEff:\t0000000000080004", "CapBnd:\t0000000000080004", "NoNewPrivs:\t1",
		"Seccomp:\t2",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("the agent's process is not confined: want %q in\n%s", want, out)
		}
	}
}

// powerless checks what the kernel says of the controllers' processes: they are nobody's, have no capabilities and get
// none, and are under a seccomp profile.
func powerless(ctx context.Context, t *testing.T, n *bed.Node) {
	t.Helper()
	pids, err := n.Controllers(ctx)
	must(t, err)
	if len(pids) != 2 {
		t.Errorf("the controllers are %q", pids)
	}
	for _, p := range pids {
		out, err := n.Exec(ctx, "cat", "/proc/"+p+"/status")
		must(t, err)
		for _, want := range []string{
			"Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
			"Seccomp:\t2",
		} {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("the controller's process has power: want %q in\n%s", want, out)
			}
		}
	}
}

// importAgent gives the nodes the image of the agent.
func importAgent(ctx context.Context, t *testing.T, c *bed.Cluster) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "agent.tar")
	f, err := os.Create(archive)
	must(t, err)
	must(t, images.WriteAgent(f, c.Bin))
	must(t, f.Close())
	must(t, c.Import(ctx, archive))
}

// installed checks whether containerd runs with the handlers of an installation.
func installed(ctx context.Context, t *testing.T, n *bed.Node, want bool) {
	t.Helper()
	client, err := cri.Dial(ctx, cri.Options{Address: n.Path(bed.ContainerdSocket)})
	must(t, err)
	defer client.Close()
	handlers, err := client.Handlers(ctx)
	must(t, err)
	for _, name := range []string{"diapause", "gvisor"} {
		if is := handlers[name].Path == "/opt/diapause/bin/containerd-shim-diapause-v1"; is != want {
			t.Errorf("the handler %s is %+v; ours: %v, want %v", name, handlers[name], is, want)
		}
	}
}

// explainLimit ends what explain asks, also when the test's own time is over.
const explainLimit = 30 * time.Second

// explain is what there is to know of a cluster in which something went wrong.
func explain(ctx context.Context, c *bed.Cluster) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainLimit)
	defer cancel()
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "pods,podsnapshots", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces"},
		{"describe", "pods", "--all-namespaces"},
		{
			"--namespace=diapause-system", "logs", "--selector=app.kubernetes.io/part-of=diapause", "--all-containers",
			"--prefix", "--tail=-1",
		},
	} {
		out, err := c.Kubectl(ctx, args...)
		fmt.Fprintf(&b, "kubectl %s: %v\n%s\n", strings.Join(args, " "), err, out)
	}
	fmt.Fprintf(&b, "containerd:\n%s", c.Node(0).Containerd.Log())
	return b.String()
}

// diapause runs the CLI in the agent's pod, and returns what it prints.
func diapause(ctx context.Context, t *testing.T, c *bed.Cluster, args ...string) string {
	t.Helper()
	return kubectl(ctx, t, c, append([]string{
		"--namespace=diapause-system", "exec", "daemonset/diapause-agent", "--",
		"/usr/local/bin/diapause",
	}, args...)...)
}

func kubectl(ctx context.Context, t *testing.T, c *bed.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(ctx, args...)
	must(t, err)
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

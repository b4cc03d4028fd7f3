package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
)

// hungLimit bounds what is asked of a sandbox that answers nothing, or lacks memory. A kubelet waits for two minutes.
const hungLimit = 100 * time.Second

// hungPods are pods whose sandbox hangs, by how each is ended.
var hungPods = []struct {
	name, from string
	end        func(ctx context.Context, n *node, p *bed.Pod) error
}{
	{"removed", "", func(ctx context.Context, n *node, p *bed.Pod) error { return n.bed.RemovePod(ctx, p.ID) }},
	{"removed-restored", "default/saved", func(ctx context.Context, n *node, p *bed.Pod) error {
		return n.bed.RemovePod(ctx, p.ID)
	}},
	{"stopped-with-grace", "", func(ctx context.Context, n *node, p *bed.Pod) error {
		_, err := n.bed.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.Container("app"), Timeout: 2})
		if err != nil {
			return fmt.Errorf("stop the container: %w", err)
		}
		return n.bed.RemovePod(ctx, p.ID)
	}},
	{"removed-twice", "default/saved", func(ctx context.Context, n *node, p *bed.Pod) error {
		brief, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if _, err := n.bed.Runtime.StopPodSandbox(brief, &cri.StopPodSandboxRequest{PodSandboxId: p.ID}); err == nil {
			return fmt.Errorf("stopped within 3s: the sandbox did not hang")
		}
		return n.bed.RemovePod(ctx, p.ID)
	}},
}

// TestHungSandbox stops the processes of sandboxes, so that these answer nothing. Their pods can still be asked about,
// and stopped and removed, as a kubelet does it, whatever waits for the sandbox meanwhile.
func TestHungSandbox(t *testing.T) {
	n := start(t)
	n.serving(n.workload("origin", "serve", "--mib=8"))
	n.checkpoint("origin", "--name=saved")
	pods, sentries := make([]*bed.Pod, len(hungPods)), make([]int, len(hungPods))
	for i, x := range hungPods {
		spec := fromSnapshot(x.name, x.from, "serve", "--mib=8")
		if x.from == "" {
			spec.Annotations = nil
		}
		p, err := n.bed.RunPod(n.ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		n.serving(p)
		pods[i], sentries[i] = p, n.sentry(p)
		n.signal(sentries[i], syscall.SIGSTOP)
		defer func() { _ = syscall.Kill(sentries[i], syscall.SIGCONT) }() // if it still is there
	}
	t.Run("pods", func(t *testing.T) {
		for i, x := range hungPods {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				n.askHung(t, pods[i])
				if err := n.bounded(t, "end", func(ctx context.Context) error { return x.end(ctx, n, pods[i]) }); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(fmt.Sprintf("/proc/%d", sentries[i])); err == nil {
					t.Error("the sandbox is still there")
				}
			})
		}
	})
}

// TestHungContainerdRestarted starts containerd again while a sandbox does not answer for a while. Its pod is kept, and
// goes on.
func TestHungContainerdRestarted(t *testing.T) {
	n := start(t)
	p := n.sleeper("kept", "--mib", "8")
	before := n.serving(p)
	sentry := n.sentry(p)
	n.signal(sentry, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(sentry, syscall.SIGCONT) }()
	n.keptByContainerd(p)
	n.signal(sentry, syscall.SIGCONT)
	n.alive(p, before)
	n.logsOn(p)
	if got := n.sh(p, "log", "echo hello"); got != "hello" {
		t.Errorf("an exec says %q", got)
	}
	n.measured(p)
}

// keptByContainerd kills containerd, starts it again, and fails the test unless it finds the pod running, and is told
// its processes: a containerd before 2.4 that starts removes a container for which it gets an error instead.
func (n *node) keptByContainerd(p *bed.Pod) {
	n.Helper()
	n.bed.Containerd.Kill()
	if err := n.bed.Containerd.Start(n.ctx); err != nil {
		n.Fatal(err)
	}
	r, err := n.bed.Runtime.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: p.Container("app")})
	if s := r.GetStatus().GetState(); err != nil || s != cri.ContainerState_CONTAINER_RUNNING {
		n.Errorf("container of %s is %v: %v", p.Name, s, err)
	}
	out, err := exec.CommandContext(n.ctx, "ctr", "--namespace=k8s.io", "tasks", "ps", p.Container("app")).Output()
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || len(lines) < 2 { // below a heading
		n.Errorf("processes of %s: %v, %s", p.Name, err, out)
	}
}

// askHung asks a pod whose sandbox hangs what a kubelet asks. It cannot say more than that its container runs.
func (n *node) askHung(t *testing.T, p *bed.Pod) {
	t.Helper()
	app := p.Container("app")
	_ = n.bounded(t, "exec", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, _, err := n.bed.Exec(ctx, app, "/bin/workload", "version")
		return err
	})
	_ = n.bounded(t, "stats", func(ctx context.Context) error {
		_, err := n.bed.Runtime.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: app})
		return err
	})
	err := n.bounded(t, "state", func(ctx context.Context) error {
		r, err := n.bed.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: app, Verbose: true})
		if s := r.GetStatus().GetState(); err == nil && s != cri.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("container is %v", s)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// bounded fails a test if a request takes longer than hungLimit.
func (n *node) bounded(t *testing.T, what string, do func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, hungLimit)
	defer cancel()
	begun := time.Now()
	err := do(ctx)
	t.Logf("%s: %v after %v", what, err, time.Since(begun).Round(time.Millisecond))
	if ctx.Err() != nil {
		t.Errorf("%s hangs", what)
	}
	return err
}

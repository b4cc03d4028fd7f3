package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/test/bed"
)

// TestCPULimit follows the limit of processor time that the kubelet has set for a pod, while the pod is restored: it is
// taken away, and put back.
func TestCPULimit(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	limited := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
	}
	p := w.run(w.pod("web", on(n), limited))
	before := w.life(p)
	limit := w.cpuLimit(n, p.Pod)
	s := w.checkpoint(p)
	w.eventually("limit after the checkpoint", func() error { return w.hasCPULimit(n, p.Pod, limit) })
	w.remove("web")

	done := w.start(w.pod("web", on(n), limited))
	w.eventually("creation of the pod", func() error { return w.client.Get(w.ctx, client.ObjectKeyFromObject(p), p.Pod) })
	ctx, stop := context.WithCancel(w.ctx)
	followed := make(chan []string)
	go func() { followed <- w.cpuLimits(ctx, n, p.DeepCopy(), limit) }()
	p = w.finish(done)
	w.restored(p, s.name, before)
	w.eventually("limit after the restore", func() error { return w.hasCPULimit(n, p.Pod, limit) })
	stop()
	seen := <-followed
	if len(seen) != 2 || seen[0] == limit || seen[1] != limit {
		t.Errorf("after %s was set, the limit was %q", limit, seen)
	}
}

// cpuLimits returns which limits of processor time a pod has, one after the other, once it had the given one.
func (w *world) cpuLimits(ctx context.Context, n *bed.Node, p *corev1.Pod, first string) (seen []string) {
	last := ""
	for had, over := false, false; !over; time.Sleep(5 * time.Millisecond) {
		over = ctx.Err() != nil // and yet it looks once more: what ended ctx may have seen a limit that this has not
		is, err := w.readCPULimit(n, p)
		if err != nil || is == last {
			continue
		}
		if had {
			seen = append(seen, is)
		}
		had, last = had || is == first, is
	}
	return seen
}

func (w *world) cpuLimit(n *bed.Node, p *corev1.Pod) string {
	w.Helper()
	limit, err := w.readCPULimit(n, p)
	w.must(err)
	return limit
}

func (w *world) hasCPULimit(n *bed.Node, p *corev1.Pod, want string) error {
	if is, err := w.readCPULimit(n, p); err != nil || is != want {
		return errors.Join(errNotYet, err, errors.New("it is "+is))
	}
	return nil
}

// readCPULimit reads the limit of processor time from the cgroup that the kubelet has made for a pod.
func (w *world) readCPULimit(n *bed.Node, p *corev1.Pod) (string, error) {
	var found []string
	for _, pattern := range []string{"cpu%s/kubepods*/%spod%s/cpu.cfs_quota_us", ".%s/kubepods*/%spod%s/cpu.max"} {
		for _, class := range []string{"", "*/"} { // of quality of service
			paths, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", fmt.Sprintf(pattern, n.CgroupParent, class, p.UID)))
			if err != nil {
				return "", err
			}
			found = append(found, paths...)
		}
	}
	if len(found) != 1 {
		return "", errNotYet
	}
	text, err := os.ReadFile(found[0])
	return strings.TrimSpace(string(text)), err
}

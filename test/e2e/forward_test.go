package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// innerPort is the port of [withInner].
const innerPort = 9090

// withInner gives a pod a container that answers at its loopback alone.
func withInner(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "inner", Image: images.Workload,
		Command: []string{"/bin/workload", "serve", "--mib=1", fmt.Sprintf("--listen=127.0.0.1:%d", innerPort)},
	})
}

// TestPortForward reaches a pod by kubectl port-forward: one that has started cold, while it is frozen
// too, and one that was brought back.
func TestPortForward(t *testing.T) {
	t.Parallel()
	w := begin(t)
	cold := w.run(w.pod("web", withInner))
	before := w.life(cold)
	w.listens("web", "inner", innerPort)
	outer, inner := w.forward("web", 8080), w.forward("web", innerPort)
	w.answers(outer, inner)
	s := w.checkpoint(cold)
	w.answers(outer, inner)
	w.remove("web")
	again := w.run(w.pod("web", withInner))
	w.restored(again, s.name, before)
	w.answers(w.forward("web", 8080), w.forward("web", innerPort))
	w.remove("web")
	w.discard(s.name)
}

// forward has kubectl forward a port to a pod until the test ends, and returns the address to ask.
func (w *world) forward(pod string, port int) string {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, w.Bin.Path("kubectl"), "--kubeconfig="+w.Kubeconfig,
		"--namespace="+w.namespace, "port-forward", "pod/"+pod, fmt.Sprintf(":%d", port))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	w.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // says that it was killed
		if w.Failed() {
			w.Logf("kubectl port-forward to port %d of %s says: %s", port, pod, said.String())
		}
	})
	var local int
	if _, err := fmt.Fscanf(out, "Forwarding from 127.0.0.1:%d", &local); err != nil {
		w.Fatalf("the port that is forwarded: %v", err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", local)
}

// listens waits until a container of a pod answers at a port of its loopback: kubectl stops to forward a port at which
// nobody listens.
func (w *world) listens(pod, container string, port int) {
	w.Helper()
	w.exec(pod, container, "wget", "-q", "-O", "/dev/null", fmt.Sprintf("http://127.0.0.1:%d/state", port))
}

// answers asks workloads how they are. The connections to them stay open.
func (w *world) answers(urls ...string) {
	w.Helper()
	for _, url := range urls {
		r, err := bed.Client.Get(url + "/state")
		w.must(err)
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK {
			w.Fatalf("%s: %s, %q, %v", url, r.Status, body, err)
		}
	}
}

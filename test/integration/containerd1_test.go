package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// TestContainerd1 takes pods through all that there is, on containerd 1.7.
func TestContainerd1(t *testing.T) {
	n := startOn(t, bed.Options{Containerd1: true})
	if out := n.mustCLI("doctor"); !strings.Contains(out, "containerd v1.7.") {
		t.Errorf("doctor does not name the version of containerd: %s", out)
	}
	p := n.pair("origin", bed.Diapause)
	before := n.serving(p)
	n.converses(p)
	n.atOnce(p, n.pair("other", bed.Diapause))
	for _, b := range n.restore("both-0", "--count=2", "--name=branch") {
		n.checkWhole(b, before.Boot, 8)
		n.converses(b)
		if got := n.sh(b, "side", "echo $BESIDE $ALIKE"); got != "1.2 abcd" {
			t.Errorf("the environment has %q", got)
		}
	}

	if err := n.bed.Containerd.Restart(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.converses(p)
	n.unharmed(p, before)
	n.knowsPaused(p)

	n.checkpoint("--stop", "--name=night", p.ID)
	if codes := n.ended(p); !slices.Equal(codes, []int32{137, 137}) {
		t.Errorf("exit codes %d", codes)
	}
	again := n.restore("night", "--name=morning")[0]
	n.unharmed(again, before)

	n.sh(again, "side", "echo kept > /file")
	n.checkpoint("--rootfs-only", "--name=files", again.ID)
	if got := n.sh(n.restore("files", "--name=filed")[0], "side", "cat /file"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
}

// knowsPaused pauses a pod whose shim takes its time to say so: containerd 1.7 calls the state unknown.
func (n *node) knowsPaused(p *bed.Pod) {
	n.Helper()
	c := n.containerd()
	if err := errors.Join(c.Pause(n.ctx, p.ID), bed.SlowShim(p.ID)); err != nil {
		n.Fatal(err)
	}
	if paused, err := c.Paused(n.ctx, p.ID); err != nil || !paused {
		n.Errorf("a paused pod is said to run: %v", err)
	}
	if err := c.Resume(n.ctx, p.ID); err != nil {
		n.Fatal(err)
	}
}

// TestContainerd1Install has the agent's own installation make its handlers known to a containerd 1.7,
// freezes a pod that runs under one of them, and takes the installation away again. Other handlers stay.
func TestContainerd1Install(t *testing.T) {
	n := startOn(t, bed.Options{Containerd1: true})
	t.Cleanup(func() { os.Remove("/etc/containerd/conf.d/diapause.toml") }) // of a test that failed
	n.installer("install")
	if _, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "ordinary", Handler: bed.Runc}); err != nil {
		t.Error(err)
	}
	p := n.pair("installed", "gvisor")
	before := n.serving(p)
	n.checkpoint("--stop", "--name=under-gvisor", p.ID)
	n.ended(p)
	n.unharmed(n.restore("under-gvisor", "--name=again")[0], before)
	pods, err := n.bed.Pods(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		// If a container ends just as it is to be stopped, 1.7 answers "ttrpc: closed"; the kubelet asks again.
		n.eventually("removal of "+p.Name, func() error { return n.bed.RemovePod(n.ctx, p.ID) })
	}
	n.installer("uninstall")
	if _, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "nobody", Handler: "gvisor"}); err == nil {
		t.Error("a pod has started under a handler that was taken away")
	}
}

// pair runs a pod of two containers, of which one says what it is.
func (n *node) pair(name, handler string) *bed.Pod {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Handler: handler, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"}},
		{
			Name: "side", Command: []string{"/bin/sh", "-c", "while true; do echo beside; sleep 0.1; done"},
			Env: map[string]string{"BESIDE": "1.2", "ALIKE": "abcd"},
		},
	}})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// converses fails the test unless a pair answers by every way there is: exec, logs, port-forward and
// statistics.
func (n *node) converses(p *bed.Pod) {
	n.Helper()
	if got := n.sh(p, "side", "echo hello"); got != "hello" {
		n.Errorf("%s says %q", p.Name, got)
	}
	n.eventually("log of "+p.Name, func() error {
		log, err := n.bed.Logs(n.ctx, p.Container("side"))
		if err == nil && !strings.HasPrefix(log, "beside\n") {
			err = fmt.Errorf("the log is %q", log)
		}
		return err
	})
	if err := n.forwarded(p); err != nil {
		n.Errorf("port-forward to %s: %v", p.Name, err)
	}
	s, err := n.bed.Runtime.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: p.Container("app")})
	if err != nil || s.Stats.GetMemory() == nil {
		n.Errorf("statistics of %s: %v, %v", p.Name, s, err)
	}
}

// forwarded asks the workload how it is by a port that containerd forwards.
func (n *node) forwarded(p *bed.Pod) error {
	r, err := n.bed.Runtime.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: p.ID})
	if err != nil {
		return err
	}
	to, err := url.Parse(r.Url)
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	f, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	ports, err := f.GetPorts()
	if err == nil {
		_, err = bed.Fetch(n.ctx, fmt.Sprintf("http://127.0.0.1:%d/state", ports[0].Local))
	}
	close(stop)
	<-ended // says that it was stopped
	return err
}

// atOnce checkpoints pods at the same time, as both-0, both-1 and so on.
func (n *node) atOnce(pods ...*bed.Pod) {
	n.Helper()
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { _, errs[i] = n.cli("checkpoint", fmt.Sprint("--name=both-", i), p.ID) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			n.Errorf("checkpoint of %s: %v", pods[i].Name, err)
		}
	}
}

// installer runs a command of the agent's that restarts containerd.
func (n *node) installer(command string) {
	n.Helper()
	wait := n.bed.Containerd.Supervise(n.ctx)
	out, err := exec.CommandContext(n.ctx, "diapause-agent", command, "--restart=signal").CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v\n%s", command, err, out)
	}
	if err := wait(); err != nil {
		n.Fatal(err)
	}
}

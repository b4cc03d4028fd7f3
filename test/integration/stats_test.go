package integration

import (
	"fmt"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
)

// TestStatsWhileRestoring asks for the statistics of all pods again and again, as a kubelet may at
// any time, while pods are restored. None of them dies of it.
func TestStatsWhileRestoring(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=32")
	st := n.serving(p)
	n.checkpoint("origin", "--name=asked")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default: // an answer that there are none yet is as good as any
				n.bed.Runtime.ListContainerStats(n.ctx, &cri.ListContainerStatsRequest{})
				n.bed.Runtime.ListPodSandboxStats(n.ctx, &cri.ListPodSandboxStatsRequest{})
			}
		}
	})
	for i := range 4 {
		n.checkWhole(n.restore("asked", fmt.Sprintf("--name=asked-%d", i))[0], st.Boot, 32)
	}
	close(stop)
	wg.Wait()
}

// measured fails the test unless there are statistics of a pod's container app.
func (n *node) measured(p *bed.Pod) {
	n.Helper()
	s, err := n.bed.Runtime.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: p.Container("app")})
	if err != nil || s.GetStats().GetMemory() == nil {
		n.Errorf("statistics of %s: %v, %v", p.Name, s, err)
	}
}

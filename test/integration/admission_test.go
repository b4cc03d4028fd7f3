package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pods of which only one fits: what each has, what wakes leave free, and what is left besides one of them, in bytes.
// That is also what saving one of them may take.
const (
	fitPod     = 256 << 20
	fitReserve = 64 << 20
	fitMore    = 256 << 20
)

// crowd are pods that sleep on a node with memory for one of them.
type crowd struct {
	*node
	flags   []string
	metrics string // address
	pods    []*bed.Pod
	before  []answers.State
}

// tighten puts so many pods to sleep. Then it limits the memory of all pods together, as a kubelet does: the memory of
// the machine is not the test's alone.
func tighten(t *testing.T, pods int) *crowd {
	t.Helper()
	m := &crowd{metrics: "127.0.0.1:9464"}
	m.flags = append(newPlace(t).flags(), fmt.Sprint("--wake-reserve=", fitReserve), "--metrics="+m.metrics)
	m.node = start(t, m.flags...)
	m.bed.CgroupParent += "/pods"
	for i := range pods {
		p := m.sleeper(fmt.Sprint("pod", i), fmt.Sprint("--mib=", fitPod>>20))
		m.pods, m.before = append(m.pods, p), append(m.before, m.serving(p))
		m.asleep(p)
	}
	now, err := m.bed.PodsMemory()
	if err == nil {
		err = m.bed.LimitPods(now.Held() + fitPod + fitReserve + fitMore)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Logf("%d MiB are the pods' while all sleep", now.Held()>>20)
	return m
}

// waits waits until "diapause top" says that a pod waits for memory. The metric says how many do.
func (m *crowd) waits(p *bed.Pod, all int) {
	m.Helper()
	m.eventually(p.Name+" waits", func() error {
		var top struct {
			Sandboxes []struct{ ID, Asleep, Request string }
		}
		m.decode(m.mustCLI("--output=json", "top"), &top)
		for _, s := range top.Sandboxes {
			if s.ID == p.ID && s.Asleep != "" && strings.Contains(s.Request, "MiB of memory") {
				return nil
			}
		}
		return fmt.Errorf("top shows %+v", top.Sandboxes)
	})
	if n := m.metric(m.metrics, "diapause_wakes_waiting"); n != all {
		m.Errorf("%d wakes wait, want %d", n, all)
	}
}

// TestWakeWaits has two pods wake of which only one fits. The second one waits, over the end of the agent, too. Whoever
// has a time limit is told why. Once the first one sleeps, the second one wakes, and nothing of it is lost.
func TestWakeWaits(t *testing.T) {
	m := tighten(t, 2)
	one, two := m.pods[0], m.pods[1]
	m.alive(one, m.before[0])
	answered := m.asks(two)
	m.waits(two, 1)
	brief, cancel := context.WithTimeout(m.ctx, 5*time.Second)
	defer cancel()
	_, _, err := m.bed.Exec(brief, two.Container("app"), "/bin/workload")
	if err == nil || !strings.Contains(err.Error(), "waits for memory: it needs") {
		t.Errorf("exec: %v", err)
	}
	began := time.Now()
	if _, err := m.bed.Runtime.ContainerStatus(m.ctx, &cri.ContainerStatusRequest{
		ContainerId: two.Container("app"),
	}); err != nil {
		t.Error(err)
	}
	t.Logf("the status of a container that waits came after %v", time.Since(began))
	m.restartAgent(m.flags...)
	m.waits(two, 1)
	select {
	case err := <-answered:
		t.Fatalf("answered without memory: %v", err)
	default:
	}
	m.sleep("", one)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	m.alive(two, m.before[1])
	if n := m.metric(m.metrics, "diapause_wakes_waiting"); n != 0 {
		t.Errorf("%d wakes wait", n)
	}
}

// TestWakeWaitsGone: once the pod is gone that had the memory, the one that waits for it wakes. A pod that is deleted
// while it waits ends at once.
func TestWakeWaitsGone(t *testing.T) {
	m := tighten(t, 3)
	m.alive(m.pods[0], m.before[0])
	answered := m.asks(m.pods[1])
	m.waits(m.pods[1], 1)
	m.asks(m.pods[2])
	m.waits(m.pods[2], 2)
	began := time.Now()
	if err := m.bed.RemovePod(m.ctx, m.pods[2].ID); err != nil {
		t.Error(err)
	}
	t.Logf("a pod that waited was deleted within %v", time.Since(began))
	m.nothingLeft(m.pods[2])
	if err := m.bed.RemovePod(m.ctx, m.pods[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	m.alive(m.pods[1], m.before[1])
}

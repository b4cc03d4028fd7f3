package integration

import (
	"strings"
	"syscall"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// TestShimWithoutAgent starts pods while no agent answers: one is gone, then one hangs.
func TestShimWithoutAgent(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("origin", "serve", "--mib", "8")
	before := n.serving(p)
	n.checkpoint("--name=saved", "origin")

	n.agent.Kill()
	n.startsWithoutAgent("gone", "", "", before)
	n.startsWithoutAgent("gone-named", "default/saved", "ColdStart", before)
	n.failsWithoutAgent("gone-strict", "default/saved")
	n.startAgent(at.flags()...)
	n.signal(n.agent.PID(), syscall.SIGSTOP)
	n.startsWithoutAgent("hung", "", "", before)
	n.signal(n.agent.PID(), syscall.SIGCONT)

	b, err := n.tryPod("restored", "default/saved", "Fail")
	if err != nil {
		t.Fatal(err)
	}
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("the pod was not restored: %+v", st)
	}
	n.unharmed(p, before)
}

// startsWithoutAgent wants a pod to start anew.
func (n *node) startsWithoutAgent(name, from, onFailure string, snapshot answers.State) {
	n.Helper()
	p, err := n.tryPod(name, from, onFailure)
	if err != nil {
		n.Error(err)
		return
	}
	if st := n.serving(p); st.Boot == snapshot.Boot {
		n.Errorf("%s was restored without an agent: %+v", p.Name, st)
	}
}

// failsWithoutAgent wants a pod not to start, and the error to say why.
func (n *node) failsWithoutAgent(name, from string) {
	n.Helper()
	p, err := n.tryPod(name, from, "Fail")
	if err == nil {
		n.Errorf("pod %s started", p.Name)
		return
	}
	for _, w := range []string{"diapause.dev/on-restore-failure", "Fail", "agent at", bed.AgentSocket} {
		if !strings.Contains(err.Error(), w) {
			n.Errorf("%q is not in %q", w, err)
		}
	}
}

// tryPod runs a pod of a workload with annotations for a restore.
func (n *node) tryPod(name, from, onFailure string) (*bed.Pod, error) {
	annotations := map[string]string{}
	if from != "" {
		annotations["diapause.dev/restore-from"] = from
	}
	if onFailure != "" {
		annotations["diapause.dev/on-restore-failure"] = onFailure
	}
	return n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Annotations: annotations, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib", "8"}},
	}})
}

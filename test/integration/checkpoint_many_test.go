package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// TestManyCheckpoints makes checkpoints of several sandboxes, and several of each, at once.
func TestManyCheckpoints(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	pods, before := n.three("many")
	errs := make([]error, 7)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = n.cli("checkpoint", fmt.Sprint("--name=s", i), pods[i%len(pods)].ID) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Error(err)
		}
		if err != nil || i < len(errs)-len(pods) {
			continue // the last of each pod will do
		}
		b := n.restore(fmt.Sprint("s", i), fmt.Sprint("--name=branch-", i))[0]
		if st := n.serving(b); st.Boot != before[i%len(pods)].Boot {
			t.Errorf("branch %d is of another pod", i)
		}
		n.verify(b)
	}
	for i, p := range pods {
		n.unharmed(p, before[i])
	}
	n.settled(at)
}

// three runs three pods of a workload, and returns them with their states.
func (n *node) three(name string) (pods []*bed.Pod, before []answers.State) {
	n.Helper()
	for i := range 3 {
		pods = append(pods, n.workload(fmt.Sprint(name, "-", i), "serve", "--mib", "8"))
		before = append(before, n.serving(pods[i]))
	}
	return pods, before
}

// TestOneName saves several sandboxes under one name at once: one has it, the others go on.
func TestOneName(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	pods, before := n.three("rival")
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { _, errs[i] = n.cli("checkpoint", "--stop", "--name=same", p.ID) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Errorf("both %d and %d have the name", winner, i)
		case !strings.Contains(err.Error(), "default/same") || !strings.Contains(err.Error(), "already exists"):
			t.Error(err)
		default:
			n.unharmed(pods[i], before[i])
		}
	}
	if winner < 0 {
		t.Fatal("none has the name")
	}
	n.ended(pods[winner])
	if st := n.serving(n.restore("same", "--name=again")[0]); st.Boot != before[winner].Boot {
		t.Error("the snapshot is of another pod")
	}
	n.settled(at)
}

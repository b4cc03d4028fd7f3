package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

// TestEndedContainer restores a pod of which a container had ended: it is there, ended as it did, and is
// run when it is started once more.
func TestEndedContainer(t *testing.T) {
	n := start(t)
	spec := bed.PodSpec{Name: "job", Containers: []bed.Container{
		{Name: "init", Command: []string{"/bin/true"}},
		{Name: "app", Command: []string{"/bin/sh", "-c", "echo begun; exec sleep 100000"}},
		{Name: "late", Command: []string{"/bin/sh", "-c", "exit 3"}},
	}}
	p, err := n.bed.RunPod(n.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	n.endedWith(p, "init", 0)
	n.endedWith(p, "late", 3)
	n.checkpoint("job", "--name=half")
	again := n.restore("half", "--name=again")[0]
	n.endedWith(again, "init", 0)
	n.endedWith(again, "late", 3)
	if out, code, err := n.bed.Exec(n.ctx, again.Container("app"), "/bin/ps"); err != nil || code != 0 ||
		!strings.Contains(out, "sleep 100000") {
		t.Errorf("%q, exit code %d, %v", out, code, err)
	}

	// A kubelet creates all containers of the pod, in its own order, and then may start one once more.
	spec.Name = "kubelets"
	spec.Annotations = fromSnapshot("", "default/half").Annotations
	k, err := n.bed.RunPod(n.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	n.endedWith(k, "init", 0)
	n.endedWith(k, "late", 3)
	if _, code, err := n.bed.Exec(n.ctx, k.Container("app"), "/bin/true"); err != nil || code != 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
	for _, p := range []*bed.Pod{again, k} {
		if err := n.bed.RemovePod(n.ctx, p.ID); err != nil {
			t.Error(err)
		}
	}
}

// endedWith waits until a container has ended with that exit code.
func (n *node) endedWith(p *bed.Pod, container string, want int32) {
	n.Helper()
	n.eventually(container+" of "+p.Name+" ends", func() error {
		code, err := n.bed.ExitCode(n.ctx, p.Container(container))
		if err == nil && code != want {
			n.Fatalf("%s of %s ended with %d, want %d", container, p.Name, code, want)
		}
		return err
	})
}

// TestNameTaken: a pod's name is not given twice, be it by requests at the same time.
func TestNameTaken(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=1")
	n.checkpoint("origin", "--name=one")
	n.refused([]string{"default/origin", p.ID[:13], "--name"}, "restore", "--name=origin", "one")
	results := make(chan error)
	for range 4 {
		go func() {
			_, err := n.cli("restore", "--name=twin", "one")
			results <- err
		}()
	}
	won := 0
	for range 4 {
		if err := <-results; err == nil {
			won++
		} else if !strings.Contains(err.Error(), "default/twin") {
			t.Error(err)
		}
	}
	pods, err := n.bed.Pods(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	if won != 1 || len(pods) != 2 {
		t.Errorf("%d of 4 restores succeeded, pods %q", won, names)
	}
	n.refused([]string{"default/twin", "--name"}, "restore", "--name=twin", "--count=1", "one")
	n.mustCLI("checkpoint", "--name=two", "--stop", "twin")
	n.restore("two", "--name=twin") // one that has ended is in nobody's way
}

// TestQuietContainer restores a container that had closed its standard streams, which gVisor keeps open then.
// It can be removed, and another one's last words are in its log.
func TestQuietContainer(t *testing.T) {
	n := start(t)
	talk := "trap 'echo farewell; exit 5' TERM; while true; do echo talking; sleep 0.1; done"
	_, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "origin", Containers: []bed.Container{
		{Name: "quiet", Command: []string{"/bin/sh", "-c", "exec </dev/null >/tmp/log 2>&1; exec sleep 100000"}},
		{Name: "talker", Command: []string{"/bin/sh", "-c", talk}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.checkpoint("origin", "--name=one")
	p := n.restore("one", "--name=again")[0]
	n.eventually("the talker talks", func() error {
		s, err := n.bed.Logs(n.ctx, p.Container("talker"))
		if err == nil && !strings.Contains(s, "talking") {
			err = errors.New("nothing is in its log")
		}
		return err
	})
	if err := n.bed.StopContainer(n.ctx, p.Container("talker"), 30); err != nil {
		t.Fatal(err)
	}
	n.endedWith(p, "talker", 5)
	if s, err := n.bed.Logs(n.ctx, p.Container("talker")); err != nil || !strings.HasSuffix(s, "farewell\n") {
		t.Errorf("the log ends with %.40q, %v", s[max(0, len(s)-40):], err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	if err := n.bed.RemovePod(ctx, p.ID); err != nil {
		t.Error(err)
	}
}

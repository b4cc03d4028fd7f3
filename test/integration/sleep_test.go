package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// logging is a container that writes numbers to its log.
var logging = bed.Container{
	Name: "log", Command: []string{"/bin/sh", "-c", "n=0; while :; do n=$((n+1)); echo line $n; usleep 50000; done"},
}

// sleeper runs a pod that can sleep: one container serves, the other one logs.
func (n *node) sleeper(name string, args ...string) *bed.Pod {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: append([]string{"/bin/workload", "serve"}, args...)}, logging,
	}})
	if err != nil {
		n.Fatal(err)
	}
	n.serving(p)
	return p
}

// TestSleep has a pod sleep and wake by packets, again and again: on new connections and on one that stays open.
func TestSleep(t *testing.T) {
	n := start(t)
	p := n.sleeper("sleeper", "--mib", "64")
	kept := bed.SilentClient(30 * time.Second)
	before := n.ask(kept, p)
	for i := range 3 {
		n.asleep(p)
		began := time.Now()
		if got := n.ask(bed.SilentClient(30*time.Second), p); got != before {
			t.Errorf("sleep %d: boot %q, then %q", i, before, got)
		}
		t.Logf("sleep %d: a new connection was answered after %v", i, time.Since(began))
		n.eventually("awake", func() error { return n.topsAsleep(p, false) })
		n.asleep(p)
		began = time.Now()
		if got := n.ask(kept, p); got != before {
			t.Errorf("sleep %d: boot %q, then %q", i, before, got)
		}
		t.Logf("sleep %d: the kept connection was answered after %v", i, time.Since(began))
	}
	n.verify(p)
	n.logsOn(p)
	n.storedBefore(p)
	n.eventually("the snapshots of former sleeps are removed", func() error {
		var all struct{ Snapshots []snapshotted }
		n.decode(n.mustCLI("--output=json", "ls"), &all)
		if len(all.Snapshots) > 2 { // the newest may be joined by one that was not replicated in time
			return fmt.Errorf("%d snapshots", len(all.Snapshots))
		}
		return nil
	})
}

// storedBefore puts a pod to sleep, and checks that its memory was stored before the pause.
func (n *node) storedBefore(p *bed.Pod) {
	n.Helper()
	n.sleep("stored-before", p)
	s := n.snapshot("stored-before")
	for _, stage := range s.Timeline {
		switch stage.Name {
		case "precopy":
			return
		case "capture":
			n.Errorf("the pause came first: %v", s.Timeline)
			return
		}
	}
	n.Errorf("no pre-copy: %v", s.Timeline)
}

// ask asks a pod for its identity.
func (n *node) ask(c *http.Client, p *bed.Pod) string {
	n.Helper()
	return n.askAt(c, p.IP)
}

// askAt asks the pod with that address for its identity.
func (n *node) askAt(c *http.Client, address string) string {
	n.Helper()
	r, err := c.Get("http://" + net.JoinHostPort(address, "8080") + "/state")
	if err != nil {
		n.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		n.Fatal(err)
	}
	var state struct {
		Boot string `json:"boot"`
	}
	n.decode(string(b), &state)
	return state.Boot
}

// asks asks a pod for its state in the background. The channel gets what became of that.
func (n *node) asks(p *bed.Pod) <-chan error {
	answered := make(chan error, 1)
	go func() {
		r, err := bed.SilentClient(3 * time.Minute).Get("http://" + p.IP + ":8080/state")
		if err == nil {
			err = r.Body.Close()
		}
		answered <- err
	}()
	return answered
}

// asleep puts a pod to sleep, and checks that its sandbox is gone and that containerd has not noticed.
func (n *node) asleep(p *bed.Pod) {
	n.Helper()
	n.sleep("", p)
	if err := n.topsAsleep(p, true); err != nil {
		n.Error(err)
	}
	now, err := n.bed.Pod(n.ctx, p.ID)
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range now.Containers {
		if c.ID != p.Container(c.Name) {
			n.Errorf("container %s is %s, was %s", c.Name, c.ID, p.Container(c.Name))
		}
		if code, err := n.bed.ExitCode(n.ctx, c.ID); err == nil {
			n.Errorf("container %s has exited with %d", c.Name, code)
		}
	}
}

// sleep puts a pod to sleep by the command line. Its snapshot gets that name, if it is not empty.
func (n *node) sleep(name string, p *bed.Pod) {
	n.Helper()
	if err := n.trySleep(name, p); err != nil {
		n.Fatal(err)
	}
	if n.readies {
		n.ready(p)
	}
}

// trySleep is sleep, and returns the error. While packets come for the pod, it is asked again: the last ones of a
// connection that a test has just closed may come late.
func (n *node) trySleep(name string, p *bed.Pod) error {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, 2*time.Minute)
	defer cancel()
	args := []string{"sleep", p.ID}
	if name != "" {
		args = append(args, "--name="+name)
	}
	var other error
	met := bed.Until(ctx, func() error {
		_, err := n.cli(args...)
		if err == nil || !strings.Contains(err.Error(), sleep.ErrTraffic.Error()) {
			other = err
			return nil
		}
		if name != "" && strings.Contains(err.Error(), "was made") {
			_, removed := n.cli("rm", name)
			err = errors.Join(err, removed)
		}
		return err
	})
	return errors.Join(met, other)
}

// refusedSleep fails the test unless the pod cannot be put to sleep, with all the words.
func (n *node) refusedSleep(p *bed.Pod, words ...string) {
	n.Helper()
	n.refusedWith(words, "sleep of "+p.Name, n.trySleep("", p))
}

// topsAsleep returns an error unless "diapause top" shows the pod as asleep, or as awake.
func (n *node) topsAsleep(p *bed.Pod, want bool) error {
	var top struct {
		Sandboxes []struct{ ID, Asleep string }
	}
	n.decode(n.mustCLI("--output=json", "top"), &top)
	for _, s := range top.Sandboxes {
		if s.ID == p.ID && (s.Asleep != "") == want {
			return nil
		}
	}
	return fmt.Errorf("top shows %+v, want pod %s asleep: %v", top.Sandboxes, p.ID, want)
}

// logsOn checks that the log of a pod has every line once, and goes on.
func (n *node) logsOn(p *bed.Pod) {
	n.Helper()
	read := func() []string {
		log, err := n.bed.Logs(n.ctx, p.Container("log"))
		if err != nil {
			n.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(log), "\n")
	}
	first := len(read())
	n.eventually("more lines", func() error {
		if now := len(read()); now <= first {
			return fmt.Errorf("%d lines, and %d before", now, first)
		}
		return nil
	})
	var want bytes.Buffer
	lines := read()
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := strings.Join(lines, "\n") + "\n"; got != want.String() {
		n.Errorf("the log is not whole: %s", got)
	}
}

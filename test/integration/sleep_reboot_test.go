package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// serving8 is a pod with a workload that holds 8 MiB.
func serving8(name string) bed.PodSpec {
	return bed.PodSpec{Name: name, UID: "uid-of-" + name, Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"},
	}}}
}

// life is a pod over several sandboxes.
type life struct {
	*node
	spec bed.PodSpec
	pod  *bed.Pod
	last answers.State
}

// live runs a pod.
func (n *node) live(spec bed.PodSpec) *life {
	n.Helper()
	l := &life{node: n, spec: spec}
	l.run()
	l.last = l.serving(l.pod)
	return l
}

func (l *life) run() {
	l.Helper()
	var err error
	if l.pod, err = l.bed.RunPod(l.ctx, l.spec); err != nil {
		l.Fatal(err)
	}
}

// next makes the pod's next sandbox, as the kubelet does when the one before has ended, and checks whether the pod goes
// on where it was, or starts anew.
func (l *life) next(goesOn bool) {
	l.Helper()
	l.spec.Attempt++
	l.run()
	now := l.serving(l.pod)
	if same := now.Boot == l.last.Boot; same != goesOn {
		l.Fatalf("%s: boot %q, and %q before: want it to go on: %v", l.spec.Name, now.Boot, l.last.Boot, goesOn)
	}
	if goesOn {
		l.alive(l.pod, l.last)
	}
	l.last = now
}

// die ends the pod's sandbox.
func (l *life) die() {
	l.Helper()
	l.signal(l.sentry(l.pod), syscall.SIGKILL)
	l.ended(l.pod)
}

// reboot reboots the node, and starts an agent.
func (n *node) reboot() {
	n.Helper()
	if err := n.bed.Reboot(n.ctx); err != nil {
		n.Fatal(err)
	}
	n.startAgent()
}

// reminders returns how many pods are remembered as asleep.
func (n *node) reminders() int {
	n.Helper()
	all, err := filepath.Glob("/var/lib/diapause/asleep/*.json")
	if err != nil {
		n.Fatal(err)
	}
	return len(all)
}

// TestSleepReboot reboots the node while one pod sleeps, one has been woken, one never slept and one was ended in its
// sleep. The first one goes on where it was, once. The others start anew: what they were lies before what they have
// done since, or was ended on purpose.
func TestSleepReboot(t *testing.T) { start(t).rebootAsleep() }

func (n *node) rebootAsleep() {
	n.Helper()
	asleep, woken, awake, ended := n.live(serving8("asleep")), n.live(serving8("woken")), n.live(serving8("awake")),
		n.live(serving8("ended"))
	n.asleep(woken.pod)
	n.alive(woken.pod, woken.last)
	n.asleep(ended.pod)
	if err := n.bed.StopContainer(n.ctx, ended.pod.Container("app"), 0); err != nil {
		n.Fatal(err)
	}
	n.endedWith(ended.pod, "app", 137)
	ended.next(false)
	n.sleep("needed", asleep.pod)
	if k := n.reminders(); k != 1 {
		n.Errorf("%d pods are remembered, want 1", k)
	}

	n.reboot()
	n.refused([]string{"in use", "default/asleep"}, "rm", "needed")
	asleep.next(true)
	for _, l := range []*life{woken, awake, ended} {
		l.next(false)
	}
	if k := n.reminders(); k != 0 {
		n.Errorf("%d pods are remembered after all have started", k)
	}

	asleep.die()
	asleep.next(false)
	n.unused("needed")
	n.reboot()
	asleep.next(false)
	n.asleep(asleep.pod) // it can sleep again, and outlive another reboot
	n.reboot()
	asleep.next(true)
}

// TestSleepRebootWithoutAgent makes the sandbox of a pod that slept before there is an agent: it is not made, and so
// the pod does not start anew, wherever the agent's state directory is. A pod that did not sleep starts.
func TestSleepRebootWithoutAgent(t *testing.T) {
	stateDir := "--state-dir=" + filepath.Join(t.TempDir(), "another")
	n := start(t, stateDir)
	asleep, awake := n.live(serving8("asleep")), n.live(serving8("awake"))
	n.asleep(asleep.pod)
	if err := n.bed.Reboot(n.ctx); err != nil {
		t.Fatal(err)
	}
	awake.next(false)
	asleep.spec.Attempt++
	if _, err := n.bed.RunPod(n.ctx, asleep.spec); err == nil || !strings.Contains(err.Error(), "waits for the agent") {
		t.Errorf("without an agent: %v", err)
	}
	n.startAgent(stateDir)
	asleep.next(true)
}

// TestSleepRebootWhileWaking reboots the node while a pod wakes: it may have run on, and starts anew.
func TestSleepRebootWhileWaking(t *testing.T) {
	n := start(t)
	p := n.live(serving8("waking"))
	n.asleep(p.pod)
	n.wakesInPart(p.pod, func() {
		n.eventually("the pod is forgotten", func() error {
			if k := n.reminders(); k != 0 {
				return fmt.Errorf("%d pods are remembered while one wakes", k)
			}
			return nil
		})
		n.reboot()
	})
	p.next(false)
}

// TestSleepUnwoken has the sandbox of a pod that wakes crash before it runs, as gVisor may. The pod sleeps on, is woken
// again without being asked, and goes on where it was.
func TestSleepUnwoken(t *testing.T) {
	n := start(t)
	hold := n.holdRevivals()
	p := n.live(serving8("unwoken"))
	answered := n.crashWaking(p, hold, func() {})
	n.wokenInPlace(p, answered)
	n.unused("kept")
	p.die()
	p.next(false)
}

// TestSleepUnwokenWithoutAgent kills the agent before that: nobody hears that the wake has failed. The pod sleeps on,
// and is woken once there is an agent.
func TestSleepUnwokenWithoutAgent(t *testing.T) {
	n := start(t)
	hold := n.holdRevivals()
	p := n.live(serving8("unwoken"))
	answered := n.crashWaking(p, hold, n.agent.Kill)
	n.startAgent()
	n.wokenInPlace(p, answered)
	n.unused("kept")
}

// TestSleepUnwokenReboot reboots the node before there is an agent again: the pod's next sandbox goes on where it was.
func TestSleepUnwokenReboot(t *testing.T) {
	n := start(t)
	hold := n.holdRevivals()
	p := n.live(serving8("unwoken"))
	n.crashWaking(p, hold, n.agent.Kill)
	n.eventually("the pod is remembered", func() error {
		if k := n.reminders(); k != 1 {
			return fmt.Errorf("%d pods are remembered", k)
		}
		return nil
	})
	n.reboot()
	p.next(true)
}

// TestSleepUnwokenEnds deletes a pod that could not be woken and sleeps on: it ends, and nothing of it is kept.
func TestSleepUnwokenEnds(t *testing.T) {
	n := start(t)
	hold := n.holdRevivals()
	p := n.live(serving8("unwoken"))
	n.crashWaking(p, hold, n.agent.Kill)
	n.removed(p.pod)
	n.startAgent()
	n.eventually("its snapshot is not needed", func() error {
		_, err := n.cli("rm", "kept")
		return err
	})
}

// TestSleepFileGone moves a file away that a pod holds open on the node, while the pod sleeps. The pod cannot be woken,
// and sleeps on; whoever wakes it hears the name of the file. Once the file is there again, it goes on where it was.
func TestSleepFileGone(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "holds", UID: "uid-of-holds", Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"}},
		{
			Name: "log", Image: images.Busybox, Mounts: []bed.Mount{{Host: dir, Container: "/srv"}},
			Command: []string{"sh", "-c", "exec 3>/srv/app.log; while :; do echo line >&3; sleep 0.2; done"},
		},
	}})
	must(t, err)
	before := n.serving(p)
	file := filepath.Join(dir, "app.log")
	n.eventually("the file is there", func() error {
		_, err := os.Stat(file)
		return err
	})
	n.asleep(p)
	must(t, os.Rename(file, file+".1"))
	for range 2 {
		if _, err := n.cli("wake", p.ID); err == nil || !strings.Contains(err.Error(), "app.log") {
			t.Errorf("wake: %v", err)
		}
		if err := n.topsAsleep(p, true); err != nil {
			t.Error(err)
		}
	}
	if err := n.getWithin(p, "/state", new(answers.State), 3*time.Second); err == nil {
		t.Error("it has answered")
	}
	must(t, os.Rename(file+".1", file))
	n.alive(p, before)
	size := func() int64 {
		fi, err := os.Stat(file)
		must(t, err)
		return fi.Size()
	}
	last := size()
	n.eventually("the file grows", func() error {
		if size() <= last {
			return fmt.Errorf("it has %d bytes", last)
		}
		return nil
	})
}

// wokenInPlace checks that a pod whose wake has failed is woken in the sandbox that containerd knows.
func (n *node) wokenInPlace(p *life, answered <-chan error) {
	n.Helper()
	if err := <-answered; err != nil {
		n.Errorf("who has asked has no answer: %v", err)
	}
	n.alive(p.pod, p.last)
	if k := n.reminders(); k != 0 {
		n.Errorf("%d pods are remembered", k)
	}
	if err := n.topsAsleep(p.pod, false); err != nil {
		n.Error(err)
	}
}

// crashWaking puts a pod to sleep, and ends its sandbox while it wakes. Before that it calls do. It returns where what
// has waked the pod gets its answer.
func (n *node) crashWaking(p *life, hold func() (held func() error, release func()), do func()) <-chan error {
	n.Helper()
	t := n.T
	pidFile := "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + p.pod.ID + "/init.pid"
	before, err := os.ReadFile(pidFile)
	must(t, err)
	n.sleep("kept", p.pod)
	held, release := hold()
	answered := make(chan error, 1)
	go func() { answered <- n.get(p.pod, "/state", new(answers.State)) }()
	n.eventually("the application is to be restored", held)
	var sandbox int // containerd knows the one before
	n.eventually("the sandbox is there", func() error {
		pid, err := os.ReadFile(pidFile)
		if err == nil && bytes.Equal(pid, before) {
			err = errors.New("it is not")
		}
		if err == nil {
			sandbox, err = strconv.Atoi(string(pid))
		}
		return err
	})
	do()
	n.signal(sandbox, syscall.SIGKILL)
	release()
	return answered
}

// holdRevivals gives the node a runsc that can be held before it brings back a container of a pod that wakes, other
// than the sandbox container. Hold has it wait from then on, until release is called; held returns an error unless one
// waits.
func (n *node) holdRevivals() (hold func() (held func() error, release func())) {
	n.Helper()
	return n.holdRunsc(`case "$*" in *--pid-file=*/revival.pid*) hold; esac
exec $real "$@"`)
}

// holdRevived is holdRevivals, but runsc is held once it has brought back the container: the container runs, and the
// shim does not know that yet.
func (n *node) holdRevived() (hold func() (held func() error, release func())) {
	n.Helper()
	return n.holdRunsc(`case "$*" in *--pid-file=*/revival.pid*) ;; *) exec $real "$@"; esac
$real "$@"
status=$?
hold
exit $status`)
}

// holdRunsc gives the node a runsc that is a script: $real is runsc, and the function hold waits.
func (n *node) holdRunsc(script string) (hold func() (held func() error, release func())) {
	n.Helper()
	path := n.copyRunsc()
	const begin = `#!/bin/sh
real=%[1]s.real
hold() {
	[ ! -e %[1]s.hold ] || : > %[1]s.held
	while [ -e %[1]s.hold ]; do sleep 0.05; done
}
`
	must(n.T, os.Rename(path, path+".real"), os.WriteFile(path, fmt.Appendf(nil, begin+"%[2]s\n", path, script), 0o755))
	return func() (held func() error, release func()) {
		must(n.T, errors.Join(os.RemoveAll(path+".held"), os.WriteFile(path+".hold", nil, 0o600)))
		held = func() error {
			_, err := os.Stat(path + ".held")
			return err
		}
		return held, func() { must(n.T, os.Remove(path+".hold")) }
	}
}

// TestSleepRebootDamaged damages the snapshot of a pod that slept when the node went down: the pod starts anew, the
// agent's log says why, and nothing of it is kept.
func TestSleepRebootDamaged(t *testing.T) {
	at := newPlace(t)
	n := start(t, "--store=dir:"+at.store)
	p := n.live(serving8("damaged"))
	n.asleep(p.pod)
	if err := n.bed.Reboot(n.ctx); err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob("/var/lib/diapause/spool/default/snapshots/*/manifest")
	if err != nil || len(manifests) != 1 {
		t.Fatalf("manifests %q, %v", manifests, err)
	}
	if err := errors.Join(os.Truncate(manifests[0], 100), os.RemoveAll(at.store+"/default")); err != nil {
		t.Fatal(err)
	}
	n.startAgent("--store=dir:" + at.store)
	p.next(false)
	if log := n.agent.Log(); !strings.Contains(log, "pod cannot be restored and starts cold") {
		t.Error("the agent's log does not say that the pod starts cold")
	}
	if k := n.reminders(); k != 0 {
		t.Errorf("%d pods are remembered", k)
	}
}

// TestSleepRebootVolume reboots the node while a pod sleeps that has a volume on the node. What the pod had written
// last did not reach the disk: the volume is as it was in the snapshot.
func TestSleepRebootVolume(t *testing.T) {
	n := start(t)
	k := newKubelet(t, "pod-volume", "data")
	spec := single("volume", k, nil)
	p, err := n.bed.RunPod(n.ctx, spec)
	must(t, err)
	n.sh(p, "app", "echo kept > /data/file; mkdir /data/dir; echo deep > /data/dir/file; echo inside > /tmp/file")
	n.asleep(p)
	before := k.tree("data")
	must(t, n.bed.Reboot(n.ctx), os.WriteFile(filepath.Join(k.dir("data"), "file"), nil, 0o644),
		os.RemoveAll(filepath.Join(k.dir("data"), "dir")), os.WriteFile(filepath.Join(k.dir("data"), "stray"), nil, 0o644))
	n.startAgent()
	spec.Attempt++
	p, err = n.bed.RunPod(n.ctx, spec)
	must(t, err)
	if got := n.sh(p, "app", "cat /data/file /data/dir/file /tmp/file; ls /data"); got != "kept\ndeep\ninside\ndir\nfile" {
		t.Errorf("the pod has %q", got)
	}
	if after := k.tree("data"); after != before {
		t.Errorf("the volume is\n%s, was\n%s", after, before)
	}
	n.sh(p, "app", fmt.Sprintf("echo %d > /data/more", os.Getpid()))
}

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// tight is how much more memory than it uses a pod may use in these tests. A save of so many objects
// takes more than that.
const tight = 40 << 20

// group is the memory cgroup of a pod's sandbox.
type group struct {
	*node
	*cgroup.Memory
}

func (n *node) group(p *bed.Pod) group {
	n.Helper()
	m, err := cgroup.MemoryOf(n.sentry(p))
	if err != nil {
		n.Fatal(err)
	}
	return group{n, m}
}

// read returns the limit and the usage of the pod.
func (g group) read() cgroup.Level {
	g.Helper()
	levels, err := g.Levels()
	if err != nil {
		g.Fatal(err)
	}
	return levels[0]
}

// limit sets the limit to so much more than is used, as a kubelet does, and returns it.
func (g group) limit(more int64) int64 {
	g.Helper()
	limit := (g.read().Usage + more) / 4096 * 4096
	g.setLimit(g.Dir(), limit)
	return limit
}

// setLimit sets the limit of a cgroup, in bytes, or takes it away.
func (n *node) setLimit(dir string, limit int64) {
	n.Helper()
	for name, none := range map[string]string{"memory.limit_in_bytes": "-1", "memory.max": "max"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue // the other version of cgroups
		}
		text := fmt.Sprint(limit)
		if limit == cgroup.Unlimited {
			text = none
		}
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			n.Fatal(err)
		}
	}
}

// is waits until the pod has a limit again.
func (g group) is(limit int64) {
	g.Helper()
	began := time.Now()
	g.eventually("limit is put back", func() error {
		if l := g.read(); l.Limit != limit {
			return fmt.Errorf("limit is %d, it was %d; %d are in use", l.Limit, limit, l.Usage)
		}
		return nil
	})
	g.Logf("limit of %d MiB after %v; in use: %d MiB", limit>>20, time.Since(began), g.read().Usage>>20)
}

// connect makes connections to a workload that it closes itself, so that it keeps them for a minute.
func (n *node) connect(p *bed.Pod, count int) {
	n.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var g errgroup.Group
	g.SetLimit(16)
	for range count {
		g.Go(func() error {
			r, err := client.Get("http://" + p.IP + ":8080/state")
			if err == nil {
				err = r.Body.Close()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		n.Fatal(err)
	}
}

// TestCheckpointMakesRoom saves a pod whose limit is a little above what it uses, and whose save takes
// more for the 3,000 connections that it has closed: the limit is raised for that, and put back.
func TestCheckpointMakesRoom(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("closed", "serve", "--mib", "8")
	before := n.serving(p)
	n.connect(p, 3000)
	n.saveTwice(p, before)
	n.settled(at)
}

// saveTwice saves a pod under a tight limit, and once more.
func (n *node) saveTwice(p *bed.Pod, before answers.State) {
	n.Helper()
	g := n.group(p)
	limit := g.limit(tight)
	for range 2 {
		n.Logf("%s uses %d MiB of %d", p.Name, g.read().Usage>>20, limit>>20)
		n.checkpoint(p.ID)
		n.Logf("%s after its save: %d MiB", p.Name, g.read().Usage>>20)
		g.is(limit)
		n.alive(p, before)
	}
}

// TestRaisedLimitIsPutBack kills, in the middle of a save, the agent and the shim: whoever comes next
// puts the limit back.
func TestRaisedLimitIsPutBack(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("limited", "serve", "--mib", "64")
	before := n.serving(p)
	g, pid := n.group(p), n.sentry(p)
	limit := g.limit(tight)
	raised := func(kill func()) func() {
		return func() {
			n.freezeSentry(pid)
			if l := g.read(); l.Limit <= limit {
				t.Errorf("limit is %d during the save, it was %d", l.Limit, limit)
			}
			kill()
		}
	}
	for _, stop := range []bool{false, true} {
		err := n.duringCapture(request(p, stop), raised(func() {
			n.agent.Kill()
			n.signal(pid, syscall.SIGCONT)
		}))
		if err == nil {
			t.Error("the agent was not killed in the middle")
		}
		g.is(limit)
		n.startAgent(at.flags()...)
		n.alive(p, before)
		n.settled(at)
	}
	shims, err := bed.Shims(p.ID)
	if err != nil || len(shims) == 0 {
		t.Fatalf("shims %v, %v", shims, err)
	}
	err = n.duringCapture(request(p, false), raised(func() {
		for _, shim := range shims {
			n.signal(shim, syscall.SIGKILL)
		}
		n.signal(pid, syscall.SIGCONT)
	}))
	if err == nil || strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("the shim was not killed in the middle: %v", err)
	}
	n.eventually("limit is put back", func() error {
		if l, err := g.Levels(); err == nil && l[0].Limit != limit {
			return fmt.Errorf("limit is %d, it was %d", l[0].Limit, limit)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
	n.settled(at)
}

// TestHostileMemoryLimit has a program take more than its limit while that is raised for a checkpoint, and keep it. No
// other checkpoint raises the limit once more. After a while the program is killed, and the limit is what it was.
func TestHostileMemoryLimit(t *testing.T) {
	const most = 256 << 20
	at := newPlace(t)
	n := start(t, at.flags()...)
	spec := serves("greedy")
	spec.MemoryLimit = most
	p, err := n.bed.RunPod(n.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	n.serving(p)
	pid, memory := n.sentry(p), n.podMemory(p)
	more := int((most-memory.Usage)>>20) - tight>>20
	if err := n.take(p, more); err != nil {
		t.Fatal(err)
	}
	var taken error
	err = n.duringCapture(request(p, false), func() {
		n.freezeSentry(pid)
		release := n.holdShims(p) // which would put the limit back before the program takes more
		n.signal(pid, syscall.SIGCONT)
		taken = n.take(p, 2*tight>>20)
		release()
	})
	if err := errors.Join(err, taken); err != nil {
		t.Fatal(err)
	}
	memory = n.podMemory(p)
	t.Logf("%d MiB are in use of %d, the limit was %d", memory.Usage>>20, memory.Limit>>20, most>>20)
	words := []string{"is still raised", "more than that is in use", "free memory in the pod, or try again in a minute"}
	n.refused(words, "checkpoint", p.ID)
	n.refused(words, "checkpoint", "--stop", p.ID)
	if now := n.podMemory(p).Limit; now > memory.Limit {
		t.Errorf("limit is raised to %d MiB, it was raised to %d", now>>20, memory.Limit>>20)
	}
	began := time.Now()
	if codes := n.ended(p); codes[0] == 0 {
		t.Errorf("exit codes %d", codes)
	}
	t.Logf("killed after %v", time.Since(began))
	n.eventually("limit is put back", func() error {
		if now := n.podLimit(p); now != most {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
}

// holdShims stops the shims of a pod by SIGSTOP until release is called.
func (n *node) holdShims(p *bed.Pod) (release func()) {
	n.Helper()
	shims, err := bed.Shims(p.ID)
	if err != nil || len(shims) == 0 {
		n.Fatalf("shims %v, %v", shims, err)
	}
	for _, shim := range shims {
		n.signal(shim, syscall.SIGSTOP)
	}
	release = sync.OnceFunc(func() {
		for _, shim := range shims {
			n.signal(shim, syscall.SIGCONT)
		}
	})
	n.Cleanup(release) // a test that failed meanwhile
	return release
}

// take has a workload keep so many MiB more.
func (n *node) take(p *bed.Pod, mib int) error {
	client := http.Client{Timeout: time.Minute}
	r, err := client.Post(fmt.Sprintf("http://%s:8080/take?mib=%d", p.IP, mib), "", nil)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return errors.Join(err, r.Body.Close())
}

// TestNoRoomToSave asks for checkpoints of a pod among others, in a cgroup that has less left than the save may take:
// they are refused with the figures, before the pod is paused, and the pod runs on. With more room it is saved, but not
// while another pod is saved and the room is enough for one of them.
func TestNoRoomToSave(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("crowded", "serve", "--mib", "8")
	before := n.serving(p)
	shared := n.sharedLevel(p)
	limit := (shared.Usage - shared.Reclaimable + tight) / 4096 * 4096
	n.setLimit(shared.Dir, limit)
	n.Cleanup(func() { n.setLimit(shared.Dir, shared.Limit) }) // other tests are below it, too
	words := []string{
		"it may take ", " MiB more memory, and cgroup ",
		fmt.Sprintf(" of %d left: free memory first", limit>>20), p.ID,
	}
	n.refused(words, "checkpoint", p.ID)
	n.refused(words, "checkpoint", "--stop", p.ID)
	n.alive(p, before)
	n.setLimit(shared.Dir, shared.Limit)

	other := n.workload("other", "serve", "--mib", "8")
	n.serving(other)
	pid := n.sentry(other)
	err := n.duringCapture(request(other, false), func() {
		n.freezeSentry(pid)
		now := n.sharedLevel(p)
		n.setLimit(shared.Dir, (now.Usage+oneSave)/4096*4096)
		n.refused([]string{"of which other checkpoints may take ", ": free memory first"}, "checkpoint", p.ID)
		n.signal(pid, syscall.SIGCONT)
	})
	if err != nil {
		t.Error(err)
	}
	n.unharmed(p, before)
	n.settled(at)
}

// oneSave is enough memory for one save of a small pod, and too little for two.
const oneSave = 300 << 20

// sharedLevel is the innermost cgroup above those of the pod itself.
func (n *node) sharedLevel(p *bed.Pod) cgroup.Level {
	n.Helper()
	levels, err := n.group(p).Levels()
	if err != nil {
		n.Fatal(err)
	}
	for _, l := range levels {
		if base := filepath.Base(l.Dir); !strings.Contains(base, p.ID) && !strings.Contains(base, p.UID) {
			return l
		}
	}
	n.Fatalf("pod %s shares no cgroup: %+v", p.Name, levels)
	return cgroup.Level{}
}

// TestRestoreMakesRoom restores pods of two containers under a limit, which is raised while they wait for the second
// container, and put back: when that has started, even if the agent was killed meanwhile, and when the shim is killed.
func TestRestoreMakesRoom(t *testing.T) {
	const limit = 256 << 20
	n := start(t)
	serve := []string{"/bin/workload", "serve", "--mib=8"}
	origin := bed.PodSpec{Name: "pair", Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: serve},
		{Name: "side", Command: []string{"/bin/sleep", "infinity"}},
	}}
	p, err := n.bed.RunPod(n.ctx, origin)
	if err != nil {
		t.Fatal(err)
	}
	before := n.serving(p)
	n.checkpoint("pair", "--name=saved")
	for _, name := range []string{"undisturbed", "agent", "shim"} {
		t.Run(name, func(t *testing.T) {
			spec := fromSnapshot(name, "default/saved")
			spec.MemoryLimit, spec.Containers = limit, origin.Containers[:1]
			pod, err := n.bed.RunPod(n.ctx, spec)
			if err != nil {
				t.Fatal(err)
			}
			if now := n.podLimit(pod); now <= limit {
				t.Errorf("limit is %d during the restore", now)
			}
			switch name {
			case "agent":
				n.agent.Kill()
				n.startAgent()
			case "shim":
				shims, err := bed.Shims(pod.ID)
				if err != nil || len(shims) == 0 {
					t.Fatalf("shims %v, %v", shims, err)
				}
				for _, shim := range shims {
					n.signal(shim, syscall.SIGKILL)
				}
			}
			if name != "shim" {
				if err := n.bed.StartContainer(n.ctx, pod, spec, origin.Containers[1]); err != nil {
					t.Fatal(err)
				}
				if st := n.serving(pod); st.Boot != before.Boot {
					t.Errorf("it is %+v, the origin was %+v", st, before)
				}
			}
			n.eventually("limit is put back", func() error {
				if now := n.podLimit(pod); now != limit {
					return fmt.Errorf("it is %d", now)
				}
				return nil
			})
			if err := n.bed.RemovePod(n.ctx, pod.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// podLimit is the memory limit of a pod that was made with one.
func (n *node) podLimit(p *bed.Pod) int64 {
	n.Helper()
	return n.podMemory(p).Limit
}

func (n *node) podMemory(p *bed.Pod) bed.Memory {
	n.Helper()
	m, err := n.bed.PodMemory(p)
	if err != nil {
		n.Fatal(err)
	}
	return m
}

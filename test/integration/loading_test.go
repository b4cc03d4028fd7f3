package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/lease"
	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// TestKilledWhileLoading kills a sandbox that loads its memory from a slow store, and its sidecar first,
// which so tells nobody. While the sandbox loads, its snapshot is not to be removed; when it is gone, it
// is.
func TestKilledWhileLoading(t *testing.T) {
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	t.Setenv("STORAGE_EMULATOR_HOST", slowed(t, store.Address))
	flags := func() []string { return []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"} }
	n := start(t, flags()...)
	n.serving(n.workload("origin", "serve", "--mib=256"))
	n.checkpoint("--name=saved", "origin")
	n.restartAgent(flags()...) // which has nothing of it on the node
	p, err := n.bed.RunPod(n.ctx, fromSnapshot("branch", "default/saved", "serve", "--mib=256"))
	if err != nil {
		t.Fatal(err)
	}

	n.refused([]string{"default/saved", "being restored"}, "rm", "saved")
	sentry, sidecars := n.sentry(p), processes(t, "checkpointgofer")
	if len(n.restores()) != 1 || len(sidecars) != 1 {
		t.Fatalf("%d restores are under way, with %d sidecars", len(n.restores()), len(sidecars))
	}
	n.signal(sidecars[0], syscall.SIGKILL)
	n.signal(sentry, syscall.SIGKILL)
	n.eventually("the snapshot is removed", func() error {
		_, err := n.cli("rm", "saved")
		return err
	})
	if left := n.restores(); len(left) != 0 {
		t.Errorf("restores under way: %v", left)
	}
}

// loadingMiB is the memory of the pods of loading.
const loadingMiB = 192

// loading is a node with pods that run and load their memory from a store.
type loading struct {
	*node
	flags  []string // of the agent
	wire   *pace    // of the store, which stands still
	before answers.State
	pods   []*bed.Pod
}

// startLoading starts a node of these options, and restores pods of these names on it from one snapshot, "saved", of
// pod "origin". They have two containers, of which one logs. Their store stands still until it hurries, at the latest
// at the end of the test.
func startLoading(t *testing.T, o bed.Options, names ...string) *loading {
	t.Helper()
	l := &loading{}
	var flags func() []string
	l.node, l.wire, flags = startSlow(t, o)
	size := fmt.Sprintf("--mib=%d", loadingMiB)
	l.before = l.serving(l.sleeper("origin", size))
	l.checkpoint("--name=saved", "origin")
	l.flags = flags()
	l.restartAgent(l.flags...) // which has nothing of it on the node
	for _, name := range names {
		spec := fromSnapshot(name, "default/saved", "serve", size)
		spec.Containers = append(spec.Containers, logging)
		p, err := l.bed.RunPod(l.ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		l.pods = append(l.pods, p)
	}
	t.Cleanup(l.wire.stop())
	for _, p := range l.pods {
		if !l.isLoading(p) {
			t.Fatalf("%s has been loaded", p.Name)
		}
	}
	return l
}

// startSlow starts a node of these options whose store is slow: pods run long before their memory is loaded. Flags
// returns those of an agent that has nothing of the store on the node.
func startSlow(t *testing.T, o bed.Options) (n *node, wire *pace, flags func() []string) {
	t.Helper()
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	wire = &pace{wait: 20 * time.Millisecond}
	t.Setenv("STORAGE_EMULATOR_HOST", slowedBy(t, store.Address, wire))
	flags = func() []string { return []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"} }
	return startOn(t, o, flags()...), wire, flags
}

// TestCheckpointWhileLoading checkpoints pods that load their memory from a store that stands still, in
// every way, and kills the agent before. Each request says that the pod loads, is called off without harm
// when its time is over, and comes to the pause only once the pod has everything.
func TestCheckpointWhileLoading(t *testing.T) {
	n := startLoading(t, bed.Options{}, "plain", "stopped", "files")
	pods := n.pods

	// The agent first asks the store, for some seconds, whether the name is free.
	n.refused([]string{"plain", "loading", "MiB", "runs on"}, "--timeout=8s", "checkpoint", "plain")
	n.agent.Kill()
	n.startAgent(n.flags...)
	requests := []*localv1.CheckpointRequest{request(pods[0], false), request(pods[1], true), request(pods[2], false)}
	requests[2].RootfsOnly = true
	for i, r := range requests {
		r.Name, r.NoWaitReplicated = pods[i].Name, true
	}
	var waiting, ended sync.WaitGroup
	waiting.Add(len(requests))
	for i, r := range requests {
		ended.Go(func() { n.loadsFirst(pods[i], r, waiting.Done) })
	}
	waiting.Wait()
	n.wire.hurry()
	ended.Wait()
	n.checkWhole(pods[0], n.before.Boot, loadingMiB)
	n.checkWhole(n.restore("stopped", "--name=again")[0], n.before.Boot, loadingMiB)
}

// loadsFirst asks for a checkpoint of a pod that is loading, which must succeed. It calls loading once
// the request says so.
func (n *node) loadsFirst(p *bed.Pod, req *localv1.CheckpointRequest, loading func()) {
	stream, err := n.client().Checkpoint(n.ctx, req)
	if err != nil {
		n.Error(err)
	}
	loading = sync.OnceFunc(loading)
	defer loading()
	var stages []string
	for err == nil {
		var e *localv1.CheckpointEvent
		if e, err = stream.Recv(); e.GetProgress() == nil {
			continue
		}
		stage := e.GetProgress().GetStage()
		if !slices.Contains(stages, stage) {
			stages = append(stages, stage)
		}
		switch {
		case stage == "load":
			loading()
		case stage == "capture" && n.isLoading(p):
			n.Errorf("%s is captured while it loads", p.Name)
		}
	}
	if !errors.Is(err, io.EOF) || !slices.Contains(stages, "load") || !slices.Contains(stages, "capture") {
		n.Errorf("checkpoint of %s: stages %v, %v", p.Name, stages, err)
	}
}

// TestRemovedWithoutAgent kills the agent while pods load their memory, and removes them: nothing waits
// for another agent, and nothing is left over.
func TestRemovedWithoutAgent(t *testing.T) {
	n := startLoading(t, bed.Options{}, "branch")
	p := n.pods[0]
	sentry := n.sentry(p)
	n.agent.Kill()

	_ = n.bounded(t, "exec", func(ctx context.Context) error { // it may fail, for its program is not there yet
		_, _, err := n.bed.Exec(ctx, p.Container("app"), "/bin/workload", "version")
		return err
	})
	_ = n.bounded(t, "stats", func(ctx context.Context) error {
		_, err := n.bed.Runtime.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: p.Container("app")})
		return err
	})
	_ = n.bounded(t, "state", func(ctx context.Context) error {
		_, err := n.bed.Runtime.ContainerStatus(ctx,
			&cri.ContainerStatusRequest{ContainerId: p.Container("app"), Verbose: true})
		return err
	})
	if err := n.bounded(t, "remove", func(ctx context.Context) error { return n.bed.RemovePod(ctx, p.ID) }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", sentry)); err == nil {
		t.Error("the sandbox is still there")
	}
	n.eventually("the sidecar ends", func() error {
		if left := processes(t, "checkpointgofer"); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
	n.wire.hurry()
	n.startAgent(n.flags...)
	n.mustCLI("rm", "saved")
}

// TestLoadingContainerdRestarted starts containerd again while a pod loads its memory. The pod is kept, and goes on.
func TestLoadingContainerdRestarted(t *testing.T) {
	n := startLoading(t, bed.Options{}, "branch", "interrupted")
	p, interrupted := n.pods[0], n.pods[1]
	n.pauseInterrupted(interrupted)
	n.keptByContainerd(p)
	n.wire.hurry()
	n.alive(p, n.before)
	if err := n.containerd().EndPause(n.ctx, interrupted.ID, holder); err != nil {
		t.Error(err)
	}
	n.alive(interrupted, n.before)
}

// holder is who has pods paused.
const holder = "holder"

// pauseInterrupted has a pod paused that waits for its memory, and so cannot be paused yet. By then, nobody waits for
// that any more, as after a kill of containerd.
func (n *node) pauseInterrupted(p *bed.Pod) {
	n.Helper()
	c := n.containerd()
	n.eventually("the pause of "+p.Name+" waits for memory", func() error {
		var v answers.Memory
		if err := n.getWithin(p, "/verify", &v, time.Second); err == nil {
			return errors.New("it has all its memory")
		}
		ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
		defer cancel()
		if _, err := c.PauseFor(ctx, p.ID, holder, lease.Longest); err != nil {
			return nil
		}
		return errors.Join(errors.New("it was paused"), c.EndPause(n.ctx, p.ID, holder))
	})
}

// TestLoadingContainerEnds stops and removes a container of a pod that loads its memory. The other one goes on.
func TestLoadingContainerEnds(t *testing.T) {
	n := startLoading(t, bed.Options{}, "branch")
	p := n.pods[0]
	n.wire.goOn() // a container whose memory does not come cannot end, and its pod is ended with it
	if err := n.bed.StopContainer(n.ctx, p.Container("log"), 1); err != nil {
		t.Error(err)
	}
	if _, err := n.bed.Runtime.RemoveContainer(n.ctx, removal(p.Container("log"))); err != nil {
		t.Error(err)
	}
	if !n.isLoading(p) {
		t.Fatal("the pod has been loaded")
	}
	n.wire.hurry()
	n.alive(p, n.before)
}

// TestHungWithoutMemory stops the process of a sandbox that loads its memory from a store, and damages what the store
// answers. The sandbox cannot end by itself as it would, and is ended.
func TestHungWithoutMemory(t *testing.T) {
	n := startLoading(t, bed.Options{}, "branch")
	p := n.pods[0]
	sentry := n.sentry(p)
	n.signal(sentry, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(sentry, syscall.SIGCONT) }() // if it still is there
	n.wire.bad.Store(true)
	n.wire.hurry()
	n.eventually("a read fails", func() error {
		if strings.Contains(n.agent.Log(), "read for the sandbox failed") {
			return nil
		}
		_ = syscall.Kill(sentry, syscall.SIGCONT) // what it has asked for was there: it asks for more
		time.Sleep(time.Millisecond)
		_ = syscall.Kill(sentry, syscall.SIGSTOP) // before it learns that a read has failed, most of the time
		return errors.New("the sandbox has asked for nothing that is damaged")
	})
	n.eventually("the sandbox is ended", func() error {
		r, err := n.bed.Runtime.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID})
		if err != nil {
			return err
		}
		if s := r.GetStatus().GetState(); s != cri.PodSandboxState_SANDBOX_NOTREADY {
			return fmt.Errorf("it is %v", s)
		}
		return nil
	})
	n.idle()
	if !strings.Contains(n.agent.Log(), "its memory or files cannot be had") {
		t.Log("the sandbox has ended by itself") // see TestEndSandbox
	}
}

// isLoading reports whether the agent waits for a pod to load its memory.
func (n *node) isLoading(p *bed.Pod) bool {
	n.Helper()
	for _, f := range n.restores() {
		b, err := os.ReadFile(f)
		if err != nil && !os.IsNotExist(err) {
			n.Error(err)
		}
		if strings.Contains(string(b), p.ID) {
			return true
		}
	}
	return false
}

// slowed returns the address of a server that passes everything on to the one at another address, and
// its answers one after the other, some 6 MiB a second in all.
func slowed(t *testing.T, address string) string {
	t.Helper()
	return slowedBy(t, address, &pace{wait: 5 * time.Millisecond})
}

// slowedBy is slowed, at a pace that changes.
func slowedBy(t *testing.T, address string, wire *pace) string {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: address}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = &slowBody{r.Body, wire}
			return nil
		},
	})
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// pace is how a server answers: slowly, unless it stands still or hurries.
type pace struct {
	wait time.Duration // before each 32 KiB of an answer
	turn sync.Mutex
	fast atomic.Bool
	bad  atomic.Bool // its answers are damaged
	done sync.Once
}

// stop has the server stand still until it hurries, or the returned function is called.
func (p *pace) stop() (hurry func()) {
	p.turn.Lock()
	return p.hurry
}

// goOn has a server that stands still answer slowly again.
func (p *pace) goOn() { p.done.Do(p.turn.Unlock) }

// hurry has a server answer as fast as it can, also if it stands still.
func (p *pace) hurry() {
	p.fast.Store(true)
	p.goOn()
}

// slowBody is read in small parts, with a pause after each.
type slowBody struct {
	io.ReadCloser
	pace *pace
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.pace.turn.Lock()
	defer b.pace.turn.Unlock()
	if !b.pace.fast.Load() {
		time.Sleep(b.pace.wait)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), 32<<10)])
	if n > 0 && b.pace.bad.Load() {
		p[n-1] ^= 0x10
	}
	return n, err
}

// processes returns the processes that run a program of that name.
func processes(t *testing.T, name string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

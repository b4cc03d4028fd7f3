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
	"diapause.dev/test/bed"
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

// TestCheckpointWhileLoading checkpoints pods that load their memory from a store that stands still, in
// every way, and kills the agent before. Each request says that the pod loads, is called off without harm
// when its time is over, and comes to the pause only once the pod has everything.
func TestCheckpointWhileLoading(t *testing.T) {
	const mib = 192
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	wire := &pace{wait: 20 * time.Millisecond} // so that pods have started long before they are loaded
	t.Setenv("STORAGE_EMULATOR_HOST", slowedBy(t, store.Address, wire))
	n := start(t, "--state-dir="+t.TempDir(), "--store=gs://bucket")
	boot := n.serving(n.workload("origin", "serve", fmt.Sprintf("--mib=%d", mib))).Boot
	n.checkpoint("--name=saved", "origin")
	fresh := []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"}
	n.restartAgent(fresh...) // which has nothing of it on the node
	var pods []*bed.Pod
	for _, name := range []string{"plain", "stopped", "files"} {
		p, err := n.bed.RunPod(n.ctx, fromSnapshot(name, "default/saved", "serve", fmt.Sprintf("--mib=%d", mib)))
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	defer wire.stop()()
	for _, p := range pods {
		if !n.isLoading(p) {
			t.Fatalf("%s has been loaded", p.Name)
		}
	}

	// The agent first asks the store, for some seconds, whether the name is free.
	n.refused([]string{"plain", "loading", "MiB", "runs on"}, "--timeout=8s", "checkpoint", "plain")
	n.agent.Kill()
	n.startAgent(fresh...)
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
	wire.hurry()
	ended.Wait()
	n.checkWhole(pods[0], boot, mib)
	n.checkWhole(n.restore("stopped", "--name=again")[0], boot, mib)
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
	const mib = 192
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	wire := &pace{wait: 20 * time.Millisecond} // so that pods have started long before they are loaded
	t.Setenv("STORAGE_EMULATOR_HOST", slowedBy(t, store.Address, wire))
	n := start(t, "--state-dir="+t.TempDir(), "--store=gs://bucket")
	n.serving(n.workload("origin", "serve", fmt.Sprintf("--mib=%d", mib)))
	n.checkpoint("--name=saved", "origin")
	fresh := []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"}
	n.restartAgent(fresh...) // which has nothing of it on the node
	p, err := n.bed.RunPod(n.ctx, fromSnapshot("branch", "default/saved", "serve", fmt.Sprintf("--mib=%d", mib)))
	if err != nil {
		t.Fatal(err)
	}
	defer wire.stop()()
	if !n.isLoading(p) {
		t.Fatal("the pod has been loaded")
	}
	sentry := n.sentry(p)
	n.agent.Kill()

	bounded := func(what string, do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(n.ctx, 45*time.Second)
		defer cancel()
		started := time.Now()
		err := do(ctx)
		t.Logf("%s: %v after %v", what, err, time.Since(started))
		if ctx.Err() != nil {
			t.Errorf("%s hangs", what)
		}
		return err
	}
	_ = bounded("exec", func(ctx context.Context) error { // it may fail, for its program is not there yet
		_, _, err := n.bed.Exec(ctx, p.Container("app"), "/bin/workload", "version")
		return err
	})
	_ = bounded("stats", func(ctx context.Context) error {
		_, err := n.bed.Runtime.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: p.Container("app")})
		return err
	})
	_ = bounded("state", func(ctx context.Context) error {
		_, err := n.bed.Runtime.ContainerStatus(ctx,
			&cri.ContainerStatusRequest{ContainerId: p.Container("app"), Verbose: true})
		return err
	})
	if err := bounded("remove", func(ctx context.Context) error { return n.bed.RemovePod(ctx, p.ID) }); err != nil {
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
	wire.hurry()
	n.startAgent(fresh...)
	n.mustCLI("rm", "saved")
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
	done sync.Once
}

// stop has the server stand still until it hurries, or the returned function is called.
func (p *pace) stop() (hurry func()) {
	p.turn.Lock()
	return p.hurry
}

// hurry has a server that stands still answer as fast as it can.
func (p *pace) hurry() {
	p.done.Do(func() {
		p.fast.Store(true)
		p.turn.Unlock()
	})
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
	return b.ReadCloser.Read(p[:min(len(p), 32<<10)])
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

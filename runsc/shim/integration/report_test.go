package integration

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

// TestReportedAgain: if the agent cannot pass on that a pod is restored, the shim repeats the report until it can. So
// the pod gets its condition even if an agent ends meanwhile. The pod starts all the same, and its removal waits for
// no agent.
func TestReportedAgain(t *testing.T) {
	resp := restoreFrom(checkpoint(t, runPod(t, spec("origin", nil))))
	t.Run("until it is heard", func(t *testing.T) {
		a := startAgent(t, decide(resp))
		var told atomic.Int32
		a.hear = func(*localv1.ReportRestoreRequest) error {
			if told.Add(1) < 3 {
				return status.Error(codes.Aborted, "the API server is away")
			}
			return nil
		}
		runPod(t, spec("heard", named))
		if r := a.report(t); !r.Complete || told.Load() != 3 {
			t.Errorf("the agent was told %d times: %v", told.Load(), r)
		}
	})
	t.Run("until the pod is gone", func(t *testing.T) {
		a := startAgent(t, decide(resp))
		a.hear = func(*localv1.ReportRestoreRequest) error {
			return status.Error(codes.Aborted, "the API server is away")
		}
		before := processes(t)
		pod, err := node.RunPod(limited(t), spec("unheard", named))
		if err != nil {
			t.Fatal(err)
		}
		removed, cancel := context.WithTimeout(t.Context(), longest/4)
		defer cancel()
		if err := client.RemovePod(removed, pod.ID); err != nil {
			t.Error(err)
		}
		nothingLeft(t, before)
	})
}

// TestStartUnheard: containerd kills a restored container before the kubelet has heard of its start, as it does when
// the kubelet ends. The sandbox ends, so that the kubelet makes another one, which is restored again. Otherwise the
// container would start anew in this one.
func TestStartUnheard(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	state(t, origin.Container("a"))
	a := startAgent(t, decide(restoreFrom(checkpoint(t, origin))))
	told, hold := make(chan string, 1), make(chan struct{})
	a.hear = func(r *localv1.ReportRestoreRequest) error {
		if r.Complete {
			told <- r.SandboxId
			<-hold
		}
		return nil
	}
	before := processes(t)
	started := make(chan error, 1)
	go func() {
		p, err := node.RunPod(limited(t), spec("unheard", named))
		if err == nil {
			err = client.RemovePod(limited(t), p.ID)
		}
		started <- err
	}()
	sandbox := <-told // so the start has not returned yet
	kill(t, sandbox)
	awaitEnd(t, sandbox)
	close(hold)
	if err := <-started; errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	nothingLeft(t, before)
}

// TestEndsSoon: a container of a restored pod ends by itself as soon as it runs, and so does each that follows it.
// Containerd kills what has ended before it deletes it. The sandbox and the other container run on.
func TestEndsSoon(t *testing.T) {
	dir := t.TempDir()
	s := spec("ends-soon", named)
	s.Containers[1].Command = []string{"/bin/sh", "-c", "while [ ! -e /mnt/end ]; do usleep 1000; done; exit 7"}
	s.Containers[1].Mounts = []bed.Mount{{Host: dir, Container: "/mnt", ReadOnly: true}}
	origin := runPod(t, s)
	boot, _ := state(t, origin.Container("a"))
	resp := restoreFrom(checkpoint(t, origin))
	if err := node.RemovePod(limited(t), origin.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, decide(resp))
	restored := runPod(t, s)
	if r := a.report(t); !r.GetComplete() {
		t.Errorf("report: %v", r)
	}
	exited(t, restored.ID, 1)
	got, before := state(t, restored.Container("a"))
	for n := 2; n <= 3; n++ {
		if err := node.StartContainer(limited(t), restored, s, s.Containers[1]); err != nil {
			t.Fatal(err)
		}
		exited(t, restored.ID, n)
	}
	later, after := state(t, restored.Container("a"))
	if got != boot || later != boot || after <= before {
		t.Errorf("container a is %s at %d, then %s at %d; want %s, counting on", got, before, later, after, boot)
	}
}

// exited waits until so many containers b of a pod have ended, each by itself.
func exited(t *testing.T, sandbox string, want int) {
	t.Helper()
	ctx := limited(t)
	for {
		p, err := client.Get(ctx, sandbox)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Ready {
			t.Fatal("the sandbox has ended, too")
		}
		n := 0
		for _, c := range p.Containers {
			if c.State == cri.StateExited {
				n++
				if c.ExitCode != 7 {
					t.Errorf("container %s ended with %d, want 7", c.Name, c.ExitCode)
				}
			}
		}
		if n == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d containers have ended, want %d", n, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestStartCutShort cancels the start of a restored pod's container at several instants, as if the kubelet had ended.
// Containerd then kills that container. Whatever a kubelet tries next, no container starts anew in a pod that is
// restored, and no process stays.
func TestStartCutShort(t *testing.T) {
	origin := runPod(t, single("origin", nil))
	boot, _ := state(t, origin.Container("a"))
	resp := restoreFrom(checkpoint(t, origin))
	resp.Containers = 1
	if err := node.RemovePod(limited(t), origin.ID); err != nil {
		t.Fatal(err)
	}
	startAgent(t, decide(resp))
	took := cutShort(t, boot, longest)
	const instants = 10
	for i := range instants {
		cutShort(t, boot, took*time.Duration(i)/instants)
	}
}

// single returns a pod with one container that counts.
func single(name string, annotations map[string]string) bed.PodSpec {
	s := spec(name, annotations)
	s.Containers = s.Containers[:1]
	return s
}

// cutShort cancels the start of a pod's container after some time, and does what a kubelet would do next. It returns
// how long the first start took.
func cutShort(t *testing.T, boot string, after time.Duration) time.Duration {
	t.Helper()
	before := processes(t)
	s := single("cut-short", named)
	pod, err := node.RunSandbox(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	defer nothingLeft(t, before)
	defer removeAll(t)
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	began := time.Now()
	err = node.StartContainer(ctx, pod, s, s.Containers[0])
	took := time.Since(began)
	t.Logf("given up after %v: %v", after, err)
	var container string
	err = bed.Until(limited(t), func() (err error) {
		container, err = startAgain(t, pod, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if container == "" {
		return took // the sandbox has ended: the kubelet makes another one, which is restored
	}
	got, _, err := readState(t, container)
	if err != nil { // the container that was given up may be killed only now
		awaitEnd(t, pod.ID)
		return took
	}
	if got != boot {
		t.Errorf("given up after %v, the container is %s, it was %s: it has started anew", after, got, boot)
	}
	return took
}

// startAgain starts a pod's container again, like a kubelet that does not know what became of it. It returns the
// container's id, or "" if the sandbox has ended.
func startAgain(t *testing.T, pod *bed.Pod, s bed.PodSpec) (id string, err error) {
	p, err := client.Get(limited(t), pod.ID)
	if err != nil || !p.Ready {
		return "", err
	}
	for _, x := range p.Containers {
		if x.State == cri.StateRunning {
			return x.ID, nil
		}
	}
	if err := node.StartContainer(limited(t), pod, s, s.Containers[0]); err != nil {
		return "", err
	}
	return pod.Containers[len(pod.Containers)-1].ID, nil
}

// kill makes containerd kill the last container of a pod.
func kill(t *testing.T, sandbox string) {
	t.Helper()
	p, err := node.Pod(limited(t), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	ctx := namespaces.WithNamespace(limited(t), "k8s.io")
	_, err = tasks.NewTasksClient(containerd(t)).Kill(ctx,
		&tasks.KillRequest{ContainerID: p.Container("b"), Signal: uint32(syscall.SIGKILL), All: true})
	if err != nil {
		t.Fatal(err)
	}
}

// containerd returns a connection to the node's containerd.
func containerd(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestEventWhileContainerdIsAway: a shim publishes an event while containerd is away, and lives on. GVisor's own shim
// would panic, and a start that had just succeeded would be lost with it: the container would start anew.
func TestEventWhileContainerdIsAway(t *testing.T) {
	pod := runPod(t, bed.PodSpec{Name: "exits", Containers: []bed.Container{
		{Name: "a", Command: []string{"/bin/sh", "-c", "sleep 1"}},
	}})
	before, err := bed.Shims(pod.ID)
	if err != nil || len(before) != 1 {
		t.Fatalf("shims %v, %v", before, err)
	}
	node.Containerd.Kill()
	time.Sleep(4 * time.Second) // the exit is published, and published again
	after, err := bed.Shims(pod.ID)
	if err != nil || !slices.Equal(after, before) {
		t.Errorf("shims %v, %v; they were %v", after, err, before)
	}
	if err := node.Containerd.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
}

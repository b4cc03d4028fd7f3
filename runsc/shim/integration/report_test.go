package integration

import (
	"context"
	"errors"
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
	"diapause.dev/test/bed"
)

// TestReportedAgain: an agent that cannot pass on that a pod is restored is told again, until it can. So the condition
// of a pod comes to be even if an agent ends meanwhile. The pod starts all the same, and its removal waits for no
// agent.
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

// TestStartUnheard has containerd kill a restored container before the kubelet has heard of its start, as it does when
// the kubelet ends. The sandbox ends, so that the kubelet makes another one, which is restored again; otherwise the
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
	sandbox := <-told // so the start has not returned
	kill(t, sandbox)
	awaitEnd(t, sandbox)
	close(hold)
	if err := <-started; errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	nothingLeft(t, before)
}

// TestStartGivenUp ends the request for the start of a restored pod's last container at several instants, as the end of
// the kubelet does: containerd then kills that container. The kubelet's successor starts it once more if the sandbox is
// still there, and finds it restored. Never does a container start anew in a pod that is restored.
func TestStartGivenUp(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	boot, _ := state(t, origin.Container("b"))
	startAgent(t, decide(restoreFrom(checkpoint(t, origin))))
	took := givenUp(t, boot, longest)
	const instants = 12
	for i := range instants {
		givenUp(t, boot, took*time.Duration(i)/instants)
	}
}

// givenUp gives the start of a pod's last container that much time, and returns what it took. If it has not ended by
// then, givenUp has the container started once more.
func givenUp(t *testing.T, boot string, after time.Duration) (took time.Duration) {
	t.Helper()
	s := spec("given-up", named)
	last := s.Containers[1]
	s.Containers = s.Containers[:1]
	pod := runPod(t, s)
	defer removePod(t, pod.ID)
	ctx, cancel := context.WithTimeout(t.Context(), after)
	began := time.Now()
	err := node.StartContainer(ctx, pod, s, last)
	took = time.Since(began)
	cancel()
	if err == nil {
		return took
	}
	err = bed.Until(limited(t), func() error {
		p, err := client.Get(limited(t), pod.ID)
		if err != nil || !p.Ready {
			return err
		}
		return node.StartContainer(limited(t), pod, s, last)
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := client.Get(limited(t), pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("given up after %v; the sandbox lives: %t", after, p.Ready)
	if !p.Ready {
		return took
	}
	if got, _ := state(t, pod.Containers[len(pod.Containers)-1].ID); got != boot {
		t.Errorf("given up after %v, the container is %s, it was %s: it has started anew", after, got, boot)
	}
	return took
}

// kill has containerd kill the last container of a pod.
func kill(t *testing.T, sandbox string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := node.Pod(limited(t), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	ctx := namespaces.WithNamespace(limited(t), "k8s.io")
	_, err = tasks.NewTasksClient(conn).Kill(ctx,
		&tasks.KillRequest{ContainerID: p.Container("b"), Signal: uint32(syscall.SIGKILL), All: true})
	if err != nil {
		t.Fatal(err)
	}
}

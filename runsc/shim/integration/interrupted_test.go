package integration

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
)

// interruptions is how many instants of a pod's start TestCreateInterrupted tries.
var interruptions = flag.Int("interruptions", 8, "how often TestCreateInterrupted kills containerd")

// TestCreateInterrupted kills containerd at several instants while a pod is created and restored. Containerd comes
// back at once, what is left of the pod can be removed, and no process stays. A kubelet that cannot remove a pod
// tries again.
func TestCreateInterrupted(t *testing.T) {
	const first, span = 100 * time.Millisecond, 300 * time.Millisecond // in a pod's start
	origin := runPod(t, spec("origin", nil))
	state(t, origin.Container("a"))
	resp := restoreFrom(checkpoint(t, origin))
	if err := node.RemovePod(limited(t), origin.ID); err != nil {
		t.Fatal(err)
	}
	startAgent(t, decide(resp))
	before := processes(t)
	for i := range *interruptions {
		after := first + span*time.Duration(i)/time.Duration(*interruptions)
		made := make(chan struct{})
		go func() {
			defer close(made)
			_, err := node.RunPod(limited(t), spec("interrupted", strict))
			t.Logf("containerd was killed after %v: %v", after, err)
		}()
		time.Sleep(after)
		node.Containerd.Kill()
		if err := node.Containerd.Start(limited(t)); err != nil {
			t.Fatal(err)
		}
		<-made
		noneUnstartedExited(t)
		removeAll(t)
		nothingLeft(t, before)
	}
}

// noneUnstartedExited checks that no container counts as exited that never started, unless the CRI itself has failed to
// start it.
func noneUnstartedExited(t *testing.T) {
	t.Helper()
	all, err := node.Runtime.ListContainers(limited(t), &cri.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all.Containers {
		resp, err := node.Runtime.ContainerStatus(limited(t), &cri.ContainerStatusRequest{ContainerId: x.Id})
		if err != nil {
			t.Fatal(err)
		}
		s := resp.Status
		if s.State == cri.ContainerState_CONTAINER_EXITED && s.StartedAt == 0 && s.Reason != "StartError" {
			t.Errorf("container %s never started, and has exited: %s, %d", s.Metadata.Name, s.Reason, s.ExitCode)
		}
	}
}

// removeAll removes all pods.
func removeAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	err := bed.Until(ctx, func() error {
		pods, err := node.Pods(ctx)
		for _, p := range pods {
			err = errors.Join(err, node.RemovePod(ctx, p.ID))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

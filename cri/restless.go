package cri

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/runsc/sleep"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// backOff is a little more than the longest time for which a kubelet waits until it starts a container again.
const backOff = 6 * time.Minute

// Restless returns an error of kind sleep.ErrInUse if a container of a pod is about to be started: it was created, or
// it failed so lately that the kubelet may be waiting to start it again.
func (f *Finder) Restless(ctx context.Context, podID string) error {
	pods, err := f.list(ctx, filterID(podID))
	if err == nil && len(pods) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("containers of pod %s: %w", podID, err)
	}
	pod := pods[0]
	for _, x := range pod.Containers {
		if x.State == StateCreated {
			return fmt.Errorf("pod %s: %w: container %s is being started", pod, sleep.ErrInUse, x.Name)
		}
	}
	for _, x := range lastEnded(pod.Containers, nil) {
		r, err := f.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: x.ID})
		if err = native(err); isGone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pod %s: container %s: %w", pod, x.Name, err)
		}
		ago := time.Since(time.Unix(0, r.GetStatus().GetFinishedAt()))
		if r.GetStatus().GetExitCode() != 0 && ago < backOff {
			return fmt.Errorf("pod %s: %w: container %s has failed, with status %d, %v ago: it may be started again",
				pod, sleep.ErrInUse, x.Name, r.GetStatus().GetExitCode(), ago.Round(time.Second))
		}
	}
	return nil
}

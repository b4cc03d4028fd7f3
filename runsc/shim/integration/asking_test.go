package integration

import (
	"context"
	"testing"

	localv1 "diapause.dev/api/local/v1"
)

// TestAskingInterrupted kills containerd while a pod's shim waits for an agent that does not answer. The next containerd
// comes while the shim still asks, or after it has given up. What is left of the pod can be removed, and no process
// stays.
func TestAskingInterrupted(t *testing.T) {
	for _, late := range []bool{false, true} {
		name := "while it asks"
		if late {
			name = "after it has given up"
		}
		t.Run(name, func(t *testing.T) {
			asked, gaveUp := make(chan struct{}, 9), make(chan struct{}, 9)
			startAgent(t, func(ctx context.Context, r *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
				asked <- struct{}{}
				defer func() { gaveUp <- struct{}{} }()
				return hang(ctx, r)
			})
			before := processes(t)
			made := make(chan struct{})
			go func() {
				defer close(made)
				_, err := node.RunPod(limited(t), spec("asking", strict))
				t.Logf("run the pod: %v", err)
			}()
			<-asked
			node.Containerd.Kill()
			<-made
			if late {
				<-gaveUp
			}
			if err := node.Containerd.Start(limited(t)); err != nil {
				t.Fatal(err)
			}
			removeAll(t)
			nothingLeft(t, before)
		})
	}
}

package integration

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"

	localv1 "diapause.dev/api/local/v1"
)

// TestAskingInterrupted kills containerd while a pod's shim waits for an agent that does not answer. The next
// containerd comes while the shim still asks, or after it has given up. What is left of the pod can be removed, and no
// process stays.
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

// TestForgottenWhileItCreates has containerd end while a pod's shim creates the sandbox, and the next one find a shim
// that does not answer in time. That containerd cleans up and removes the bundle, though the shim is alive: the shim
// ends by itself, with all that it has created.
func TestForgottenWhileItCreates(t *testing.T) {
	asked := make(chan struct{}, 9)
	startAgent(t, func(ctx context.Context, r *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
		asked <- struct{}{}
		return hang(ctx, r)
	})
	before := processes(t)
	made := make(chan struct{})
	go func() {
		defer close(made)
		_, err := node.RunPod(limited(t), spec("forgotten", strict))
		t.Logf("run the pod: %v", err)
	}()
	<-asked
	shim := shimPID(t, before)
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	node.Containerd.Kill()
	<-made
	err := node.Containerd.Start(limited(t))
	if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	removeAll(t)
	nothingLeft(t, before)
}

// shimPID returns the process of a shim that was not there before.
func shimPID(t *testing.T, before map[string]string) int {
	t.Helper()
	for name, cmdline := range processes(t) {
		if before[name] == "" && strings.Contains(cmdline, " serve ") {
			pid, err := strconv.Atoi(name)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("there is no new shim")
	return 0
}

package kube_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// stopping makes a world whose policy stops pods after their checkpoint.
func stopping(t *testing.T) *world {
	w := newWorld(t)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.TriggerConfig.PostCheckpoint = podsnapshotv1.PostCheckpointStop
	})
	return w
}

// ranOn checks the answer to a checkpoint whose pod was not stopped. The request has failed, and the message says
// that there is a snapshot, which is Ready.
func (w *world) ranOn(message, why string) {
	w.t.Helper()
	all := w.snapshots()
	if len(all) != 1 {
		w.t.Fatalf("%d PodSnapshots, message %q", len(all), message)
	}
	for _, want := range []string{
		"PodSnapshot " + w.ns + "/" + all[0].Name + " was made", "was not stopped and runs on",
		why,
	} {
		if !strings.Contains(message, want) {
			w.t.Errorf("message %q, want %q", message, want)
		}
	}
	w.replicated(&all[0])
	if err := is(all[0].Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
		podsnapshotv1.ReasonAllSnapshotsAvailable); err != nil {
		w.t.Error(err)
	}
}

// latePodSnapshots makes the API server slow to create PodSnapshots, so that reports about one come even later.
func latePodSnapshots(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/podsnapshots") {
			time.Sleep(200 * time.Millisecond)
		}
		return next.RoundTrip(r)
	})
}

// TestStopFails: if the pod was not stopped although it should have been, its request has failed, however it was
// made.
func TestStopFails(t *testing.T) {
	for _, by := range []string{"trigger", "annotation"} {
		t.Run(by, func(t *testing.T) {
			w := stopping(t)
			node := w.node("a")
			w.start(node, func(n *fakeNode, c *kube.Config) {
				c.RestConfig.Wrap(latePodSnapshots)
				n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					if s == stepStop {
						return errors.New("containerd does not answer")
					}
					return nil
				}
			})
			pod := w.pod(node, "web")
			if by == "trigger" {
				w.ranOn(w.failed(w.trigger("t", "web")), "containerd does not answer")
			} else {
				w.ask(pod, "x")
				w.ranOn(w.answered(pod, "x").Message, "containerd does not answer")
			}
			w.event(pod, corev1.EventTypeWarning, "was not stopped and runs on: containerd does not answer")
		})
	}
}

// TestKilledBeforeStop: an agent is killed when the snapshot is safe and the pod is not stopped yet. The next agent
// reports that the pod runs on, even if it is killed again before it has.
func TestKilledBeforeStop(t *testing.T) {
	w := stopping(t)
	node := w.node("a")
	w.pod(node, "web")
	r := w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
			if s == stepStop {
				n.die()
			}
			return nil
		}
	})
	tr := w.trigger("t", "web")
	<-r.boot.Done()
	r.kill()
	mute := w.start(node, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return refused{next: next, method: http.MethodPatch, path: "/t/status"}
		})
	})
	err := w.eventually(func(context.Context) error {
		if all := w.snapshots(); len(all) != 1 || !rules.Replicated(&all[0]) {
			return errors.New("not replicated yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mute.kill()
	w.start(node)
	w.ranOn(w.failed(tr), "the agent ended before the sandbox was stopped")
}

// TestStopUnheard: an agent that has never reached the API server ends when it is told to.
func TestStopUnheard(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{}, 1)
	r := w.start(w.node("a"), func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(failing(func(*url.URL) bool {
			select {
			case asked <- struct{}{}:
			default:
			}
			return true
		}))
	})
	<-asked
	r.kill()
}

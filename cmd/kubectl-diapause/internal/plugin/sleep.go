package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

func (p *plugin) sleep() *cobra.Command {
	var wakeAt string
	c := &cobra.Command{
		Use:   "sleep POD",
		Short: "Put a pod to sleep: it keeps its place and address, and uses no memory until a packet comes",
		Long: `Put a pod to sleep. It keeps its name, its address and its volumes, and uses no memory. The next
packet for its address wakes it, and so do "kubectl exec" and "kubectl diapause wake". A SleepPolicy or
a PodSnapshotPolicy must select the pod.

If a packet comes while the pod goes to sleep, it stays awake and the command fails.`,
		Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := time.Parse(time.RFC3339, wakeAt); wakeAt != "" && err != nil {
				return fmt.Errorf("--wake-at %.64q: want a time such as 2030-12-31T07:30:00Z", wakeAt)
			}
			return nil
		},
		RunE: p.run(func(ctx context.Context, args []string) error {
			annotations := make(map[string]string)
			if wakeAt != "" {
				annotations[podsnapshotv1.AnnotationWakeAt] = wakeAt
			}
			asked := func(s podsnapshotv1.SleepStatus) string { return s.Sleep }
			return p.request(ctx, "put to sleep", args[0], podsnapshotv1.AnnotationSleep, annotations, asked)
		}),
	}
	c.Flags().StringVar(&wakeAt, "wake-at", "", "`time` at which the pod is woken, in RFC 3339")
	return c
}

func (p *plugin) wake() *cobra.Command {
	return &cobra.Command{
		Use:   "wake POD",
		Short: "Wake a pod that sleeps",
		Long:  `Wake a pod that sleeps, and return when it runs. A pod that does not sleep stays as it is.`,
		Args:  cobra.ExactArgs(1),
		RunE: p.run(func(ctx context.Context, args []string) error {
			asked := func(s podsnapshotv1.SleepStatus) string { return s.Wake }
			return p.request(ctx, "wake", args[0], podsnapshotv1.AnnotationWake, make(map[string]string), asked)
		}),
	}
}

// request asks for something by an annotation of a pod, beside others, and waits for the answer. Asked returns which
// request an answer is for.
func (p *plugin) request(ctx context.Context, doing, name, annotation string, annotations map[string]string,
	asked func(podsnapshotv1.SleepStatus) string,
) error {
	failed := func(err error) error { return fmt.Errorf("%s pod %s/%s: %w", doing, p.namespace, name, err) }
	var pod corev1.Pod
	if err := p.client.Get(ctx, p.key(name), &pod); err != nil {
		return failed(err)
	}
	if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return failed(fmt.Errorf("it is not running, it has ended (%s)", phase))
	}
	id := "kubectl-" + time.Now().UTC().Format("20060102T150405.000000000")
	annotations[annotation] = id
	if err := p.annotate(ctx, &pod, annotations); err != nil {
		return failed(err)
	}
	answered := false
	var answer podsnapshotv1.SleepStatus
	uid := pod.UID
	err := until(ctx, func() (bool, error) {
		if err := p.client.Get(ctx, p.key(name), &pod); err != nil {
			return false, err
		}
		if pod.UID != uid {
			return false, errors.New("it was deleted, and another pod has its name")
		}
		answer = podsnapshotv1.ParseSleepStatus(pod.Annotations)
		answered = asked(answer) == id
		return answered && answer.State != podsnapshotv1.SleepWorking, nil
	})
	switch {
	case err != nil && !answered && ctx.Err() != nil:
		return failed(fmt.Errorf("%w: no agent has answered: does the pod run under Diapause, on a node with an agent? "+
			"The request stays: to take it back, run kubectl annotate pod %s %s-", err, name, annotation))
	case err != nil:
		return failed(err)
	case answer.State == podsnapshotv1.SleepFailed:
		return failed(errors.New(answer.Message))
	}
	_, err = fmt.Fprintf(p.out, "pod %s: %s\n", name, answer.State)
	return err
}

// annotate sets annotations of a pod, unless another one has its name by now.
func (p *plugin) annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	return p.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))
}

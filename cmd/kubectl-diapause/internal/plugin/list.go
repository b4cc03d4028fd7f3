package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/cmd/internal/table"
)

func (p *plugin) list() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List snapshots, the newest last",
		Args:  cobra.NoArgs,
		RunE:  p.run(func(ctx context.Context, _ []string) error { return p.runList(ctx, everywhere) }),
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "list those of all namespaces")
	return c
}

func (p *plugin) runList(ctx context.Context, everywhere bool) error {
	var all podsnapshotv1.PodSnapshotList
	if err := p.client.List(ctx, &all, p.in(everywhere)...); err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	slices.SortStableFunc(all.Items, func(a, b podsnapshotv1.PodSnapshot) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	if len(all.Items) == 0 {
		p.note("no snapshots in %s", p.where(everywhere))
		return nil
	}
	r := p.rows(everywhere, "SNAPSHOT", "STATUS", "POD", "POLICY", "PURPOSE", "AGE")
	for i := range all.Items {
		s := &all.Items[i]
		r.add(s.Namespace, s.Name, statusOf(s), cmp.Or(s.Annotations[podsnapshotv1.AnnotationOriginPod], "-"),
			s.Spec.PolicyName, cmp.Or(s.Annotations[podsnapshotv1.AnnotationPurpose], "-"), since(s.CreationTimestamp))
	}
	return r.Flush()
}

// statusOf says whether a snapshot can be restored, and if not, why.
func statusOf(s *podsnapshotv1.PodSnapshot) string {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
	switch {
	case s.DeletionTimestamp != nil:
		return podsnapshotv1.ReasonDeleting
	case c == nil:
		return "-"
	}
	return c.Reason
}

func (p *plugin) pods() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use:   "pods",
		Short: "List the pods that run under Diapause: which sleep, and which were restored",
		Args:  cobra.NoArgs,
		RunE:  p.run(func(ctx context.Context, _ []string) error { return p.runPods(ctx, everywhere) }),
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "list those of all namespaces")
	return c
}

func (p *plugin) runPods(ctx context.Context, everywhere bool) error {
	var all corev1.PodList
	if err := p.client.List(ctx, &all, p.in(everywhere)...); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	all.Items = slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool { return !ours(&pod) })
	if len(all.Items) == 0 {
		p.note("no pods run under Diapause in %s", p.where(everywhere))
		return nil
	}
	r := p.rows(everywhere, "POD", "STATE", "SINCE", "RESTORED", "NODE", "MESSAGE")
	for i := range all.Items {
		pod := &all.Items[i]
		state, at, message := stateOf(pod)
		restored := "-"
		if c := conditionOf(pod, podsnapshotv1.ConditionPodRestored); c != nil {
			restored = string(c.Status)
			if c.Status != corev1.ConditionTrue {
				message = strings.TrimPrefix(message+"; "+c.Message, "; ")
			}
		}
		r.add(pod.Namespace, pod.Name, state, at, restored, cmp.Or(pod.Spec.NodeName, "-"), message)
	}
	return r.Flush()
}

// prefix is how the names of Diapause's RuntimeClasses begin.
const prefix = "diapause"

// ours reports whether a pod runs under Diapause, as far as the cluster knows.
func ours(pod *corev1.Pod) bool {
	return pod.Spec.RuntimeClassName != nil && strings.HasPrefix(*pod.Spec.RuntimeClassName, prefix) ||
		conditionOf(pod, podsnapshotv1.ConditionAsleep) != nil || conditionOf(pod, podsnapshotv1.ConditionPodRestored) != nil
}

// stateOf says whether a pod sleeps, for how long it has slept or been awake, and what its owner should know.
func stateOf(pod *corev1.Pod) (state, at, message string) {
	c := conditionOf(pod, podsnapshotv1.ConditionAsleep)
	switch {
	case pod.Status.Phase != corev1.PodRunning:
		return string(pod.Status.Phase), since(pod.CreationTimestamp), ""
	case c == nil:
		return string(podsnapshotv1.SleepAwake), since(pod.CreationTimestamp), ""
	case c.Status != corev1.ConditionTrue:
		return string(podsnapshotv1.SleepAwake), since(c.LastTransitionTime), ""
	case c.Reason != podsnapshotv1.ReasonSlept:
		message = c.Message
	case strings.Contains(c.Message, podsnapshotv1.ReadyToWake):
		message = podsnapshotv1.ReadyToWake
	}
	return string(podsnapshotv1.SleepAsleep), since(c.LastTransitionTime), message
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

func since(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// in returns the options of a list of one namespace, or of all.
func (p *plugin) in(everywhere bool) []client.ListOption {
	if everywhere {
		return nil
	}
	return []client.ListOption{client.InNamespace(p.namespace)}
}

func (p *plugin) where(everywhere bool) string {
	if everywhere {
		return "the cluster"
	}
	return "namespace " + p.namespace
}

// rows are rows of a table, with their namespace if the table is of all.
type rows struct {
	table.Rows
	everywhere bool
}

func (p *plugin) rows(everywhere bool, header ...string) rows {
	if everywhere {
		header = append([]string{"NAMESPACE"}, header...)
	}
	return rows{table.New(p.out, header...), everywhere}
}

func (r rows) add(namespace string, cells ...string) {
	if r.everywhere {
		cells = append([]string{namespace}, cells...)
	}
	r.Add(cells...)
}

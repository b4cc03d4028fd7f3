package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

func (p *plugin) checkpoint() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint POD",
		Short: "Checkpoint a pod, and print the name of its snapshot",
		Long: `Checkpoint a pod, and print the name of its snapshot. A PodSnapshotPolicy must select the pod, and
says whether it goes on running or ends.

The command creates a PodSnapshotManualTrigger, and deletes it at the end. If it is interrupted, the
checkpoint goes on, and the trigger stays.`,
		Args: cobra.ExactArgs(1),
		RunE: p.run(func(ctx context.Context, args []string) error { return p.runCheckpoint(ctx, args[0]) }),
	}
}

func (p *plugin) runCheckpoint(ctx context.Context, pod string) error {
	if err := p.client.Get(ctx, p.key(pod), new(corev1.Pod)); err != nil {
		return fmt.Errorf("checkpoint pod %s/%s: %w", p.namespace, pod, err)
	}
	t := &podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "kubectl-"},
		Spec:       podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: pod},
	}
	if err := p.client.Create(ctx, t); err != nil {
		return fmt.Errorf("checkpoint pod %s/%s: %w", p.namespace, pod, err)
	}
	p.note("podsnapshotmanualtrigger %s created", t.Name)
	var snapshot string
	err := until(ctx, func() (done bool, err error) {
		if err := p.client.Get(ctx, p.key(t.Name), t); err != nil {
			return false, err
		}
		snapshot, done, err = outcome(t)
		return done, err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("checkpoint pod %s/%s: %w: it goes on, and podsnapshotmanualtrigger %s says what becomes of it",
			p.namespace, pod, err, t.Name)
	}
	if gone := client.IgnoreNotFound(p.client.Delete(ctx, t)); gone != nil {
		p.note("podsnapshotmanualtrigger %s is not deleted: %v", t.Name, gone)
	}
	if err != nil {
		return fmt.Errorf("checkpoint pod %s/%s: %w", p.namespace, pod, err)
	}
	_, err = fmt.Fprintln(p.out, snapshot)
	return err
}

// outcome returns the snapshot that a trigger has made, once it has, or why it has not.
func outcome(t *podsnapshotv1.PodSnapshotManualTrigger) (snapshot string, done bool, err error) {
	c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
	switch {
	case c == nil || c.Status == metav1.ConditionUnknown:
		return "", false, nil
	case c.Status == metav1.ConditionTrue && t.Status.SnapshotCreated != nil:
		return t.Status.SnapshotCreated.Name, true, nil
	}
	return "", false, errors.New(c.Message)
}

func (p *plugin) remove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SNAPSHOT...",
		Short: "Delete snapshots, with their data",
		Long: `Delete snapshots, with their data. The command returns once the data is deleted. A snapshot that a pod
is being restored from is deleted after that.`,
		Args: cobra.MinimumNArgs(1),
		RunE: p.run(p.runRemove),
	}
}

func (p *plugin) runRemove(ctx context.Context, names []string) (err error) {
	for _, name := range names {
		if e := p.removeOne(ctx, name); e != nil {
			err = errors.Join(err, fmt.Errorf("delete snapshot %s/%s: %w", p.namespace, name, e))
		}
	}
	return err
}

func (p *plugin) removeOne(ctx context.Context, name string) error {
	var s podsnapshotv1.PodSnapshot
	if err := p.client.Get(ctx, p.key(name), &s); err != nil {
		return err
	}
	if err := p.client.Delete(ctx, &s, client.Preconditions{UID: &s.UID}); err != nil {
		return err
	}
	uid := s.UID
	err := until(ctx, func() (bool, error) {
		err := p.client.Get(ctx, p.key(name), &s)
		return apierrors.IsNotFound(err) || err == nil && s.UID != uid, err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the deletion goes on", err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "snapshot %s deleted\n", name)
	return err
}

package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
)

// maxCount bounds --count to what one node can hold.
const maxCount = 1000

func (t *tool) restore() *cobra.Command {
	var namespace, name string
	var count int32
	c := &cobra.Command{
		Use:   "restore [--namespace NS] [--name N] [--count K] SNAPSHOT",
		Short: "Start new pods from a snapshot",
		Long: `Start new pods from a snapshot. SNAPSHOT is a name or namespace/name. All pods continue from the
same instant, independently of each other. The command ends when all their memory is loaded.

On a node with a kubelet this is refused, because the kubelet would remove such pods. There, create a
pod with the annotation diapause.dev/restore-from: <namespace>/<snapshot>.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: t.completeSnapshots,
		RunE: t.run(func(ctx context.Context, args []string) error {
			k, err := parseKey(args[0], namespace)
			if err != nil {
				return err
			}
			return t.runRestore(ctx, k, name, count)
		}),
	}
	namespaceFlag(c, &namespace, "`namespace` of the snapshot and of the pods (default \"default\")")
	c.Flags().StringVar(&name, "name", "", "`name` of the new pod; with --count, -0, -1, ... is added")
	c.Flags().Int32Var(&count, "count", 1, "`number` of pods to start")
	return c
}

func (t *tool) runRestore(ctx context.Context, k snapshot.Key, name string, count int32) error {
	if count < 1 || count > maxCount {
		return usage.Error{Err: fmt.Errorf("--count %d: want 1 to %d", count, maxCount)}
	}
	if name != "" && !snapshot.ValidName(name) {
		return usage.Error{Err: fmt.Errorf("--name %.200q: want at most 253 of a-z, 0-9, '-' and '.'", name)}
	}
	ctx, cancel := t.long(ctx)
	defer cancel()
	return t.ask(ctx, func(a localv1.AgentClient) error {
		run := restoreRun{
			tool: t, display: progress.New(t.err, progress.Bytes),
			result: view.Restore{Snapshot: k.String(), Pods: []view.Pod{}},
		}
		err := run.follow(ctx, a, &localv1.RestoreRequest{Namespace: k.Namespace, Snapshot: k.Name, Name: name, Count: count})
		run.display.Close()
		return run.end(failed("restore", k.String(), err))
	})
}

// restoreRun follows one restore. In a table, it prints each pod's row as soon as the pod runs.
type restoreRun struct {
	tool    *tool
	display progress.Display
	result  view.Restore
}

func (r *restoreRun) follow(ctx context.Context, a localv1.AgentClient, req *localv1.RestoreRequest) error {
	s, err := a.Restore(ctx, req)
	if err == nil {
		err = receive(s, r.take)
	}
	if err == nil && len(r.result.Pods) < int(req.Count) {
		err = errors.New("the agent ended the call before all pods were restored: see its log")
	}
	return err
}

func (r *restoreRun) take(e *localv1.RestoreEvent) error {
	switch v := e.GetEvent().(type) {
	case *localv1.RestoreEvent_Progress:
		r.display.Update(v.Progress.GetStage(), v.Progress.GetDone(), v.Progress.GetTotal())
	case *localv1.RestoreEvent_Restored:
		r.add(v.Restored, false)
	case *localv1.RestoreEvent_Loaded:
		r.add(v.Loaded, true)
	}
	return nil
}

func (r *restoreRun) add(p *localv1.RestoredPod, loaded bool) {
	before := len(r.result.Pods)
	pod := r.result.Add(p, loaded)
	if len(r.result.Pods) == before || r.tool.format != view.Table {
		return
	}
	r.display.Close()
	if before == 0 {
		view.PodHeader(r.tool.out)
	}
	pod.Row(r.tool.out)
}

// end prints what a table has not shown yet, even if the restore failed halfway.
func (r *restoreRun) end(err error) error {
	if r.tool.format == view.Table || err != nil && len(r.result.Pods) == 0 {
		return err
	}
	r.result.Failure = failure(err)
	return errors.Join(err, r.tool.print(&r.result))
}

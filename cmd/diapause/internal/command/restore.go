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

func (s *snapshotCommands) restore() *cobra.Command {
	req := new(localv1.RestoreRequest)
	var namespace string
	c := &cobra.Command{
		Use:   "restore [--namespace NS] [--name N] [--count K] [--allow KIND:VALUE]... SNAPSHOT",
		Short: "Start new pods from a snapshot",
		Long: `Start new pods from a snapshot. SNAPSHOT is a name or namespace/name. All pods continue from the
same instant, independently of each other. The command ends when all their memory is loaded.

On a node with a kubelet this is refused, because the kubelet would remove such pods. There, create a
pod with the annotation diapause.dev/restore-from: <namespace>/<snapshot>.

A snapshot says how its pod was made, and that may be forged. So a new pod gets from it only
what gives it nothing on this node. A snapshot that asks for more is refused, and the error names what
it asks for. If you trust the snapshot, name each of these things by --allow:
  privileged, user-namespace
  host-namespace:network, host-namespace:pid, host-namespace:ipc
  host-path:PATH           a mount of exactly this path of the node, also of a volume made by a kubelet
  device:PATH, cdi-device:NAME
  capability:NAME          such as NET_ADMIN, beyond those that containerd gives every container
  seccomp:unconfined, seccomp:localhost/NAME, apparmor:unconfined, apparmor:localhost/NAME
  selinux:USER:ROLE:TYPE:LEVEL
  sysctl:NAME              beyond those that Kubernetes calls safe
  cgroup-parent:PATH, resource:FILE
  annotation:NAME, label:NAME`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSnapshots,
		RunE: s.run(func(ctx context.Context, args []string) error {
			k, err := parseKey(args[0], namespace)
			if err != nil {
				return err
			}
			req.Namespace, req.Snapshot = k.Namespace, k.Name
			return s.runRestore(ctx, k, req)
		}),
	}
	namespaceFlag(c, &namespace, "`namespace` of the snapshot and of the pods (default \"default\")")
	c.Flags().StringVar(&req.Name, "name", "", "`name` of the new pod; with --count, -0, -1, ... is added")
	c.Flags().Int32Var(&req.Count, "count", 1, "`number` of pods to start")
	c.Flags().StringArrayVar(&req.Allow, "allow", nil,
		"`what` the snapshot may ask for by itself, such as host-path:/data; may be repeated")
	return c
}

func (s *snapshotCommands) runRestore(ctx context.Context, k snapshot.Key, req *localv1.RestoreRequest) error {
	if n := req.GetCount(); n < 1 || n > maxCount {
		return usage.Error{Err: fmt.Errorf("--count %d: want 1 to %d", n, maxCount)}
	}
	if name := req.GetName(); name != "" && !snapshot.ValidName(name) {
		return usage.Error{Err: fmt.Errorf("--name %.200q: want at most 253 of a-z, 0-9, '-' and '.'", name)}
	}
	ctx, cancel := s.client.long(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		run := restoreRun{
			console: s.console, display: progress.New(s.console.err, progress.Bytes),
			result: view.Restore{Snapshot: k.String(), Pods: []view.Pod{}},
		}
		err := run.follow(ctx, a, req)
		run.display.Close()
		return run.end(failed("restore", k.String(), err))
	})
}

// restoreRun follows one restore. In a table, it prints each pod's row as soon as the pod runs.
type restoreRun struct {
	console *console
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
	if len(r.result.Pods) == before || r.console.format != view.Table {
		return
	}
	r.display.Close()
	if before == 0 {
		view.PodHeader(r.console.out)
	}
	pod.Row(r.console.out)
}

// end prints what a table has not shown yet, even if the restore failed halfway.
func (r *restoreRun) end(err error) error {
	if r.console.format == view.Table || err != nil && len(r.result.Pods) == 0 {
		return err
	}
	r.result.Failure = failure(err)
	return errors.Join(err, r.console.print(&r.result))
}

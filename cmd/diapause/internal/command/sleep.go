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

func (p *podCommands) sleep() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "sleep [--name N] POD",
		Short: "Put a pod to sleep: it keeps its place and address, and uses no memory until a packet comes",
		Long: `Put a pod to sleep. POD is a pod's name, namespace/name, a pod id or a container id. The pod is
saved, and its sandbox ends. The pod itself stays, with its name, its address and its volumes, and for
Kubernetes it goes on running. Its connections stay open.

The next packet for its address wakes it, and so does "kubectl exec", "kubectl port-forward" and
"diapause wake". The packets that came meanwhile are delivered then.

If a packet comes while the pod goes to sleep, it stays awake and the command fails. A pod does not
sleep while a process runs in it that was started by exec, or if a container has a terminal or a
standard input.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completePods,
		RunE:              p.run(func(ctx context.Context, args []string) error { return p.runSleep(ctx, args[0], name) }),
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the snapshot (default: made from the pod's name)")
	return c
}

func (p *podCommands) runSleep(ctx context.Context, pod, name string) error {
	if name != "" && !snapshot.ValidName(name) {
		return usage.Error{Err: fmt.Errorf("--name %.200q: want at most 253 of a-z, 0-9, '-' and '.'", name)}
	}
	ctx, cancel := p.client.long(ctx)
	defer cancel()
	return p.client.ask(ctx, func(a localv1.AgentClient) error {
		display := progress.New(p.console.err, progress.Bytes)
		result, err := followSleep(ctx, a, &localv1.SleepRequest{Target: pod, Name: name}, display)
		display.Close()
		if err != nil {
			return failed("put to sleep", pod, err)
		}
		return p.console.print(result)
	})
}

// followSleep returns what the agent says once the pod sleeps.
func followSleep(ctx context.Context, a localv1.AgentClient, req *localv1.SleepRequest, display progress.Display,
) (result view.Slept, err error) {
	asleep := false
	stream, err := a.Sleep(ctx, req)
	if err != nil {
		return result, err
	}
	err = receive(stream, func(e *localv1.SleepEvent) error {
		switch v := e.GetEvent().(type) {
		case *localv1.SleepEvent_Accepted:
			result.Request = v.Accepted
			display.Update("request "+v.Accepted, 0, 0)
		case *localv1.SleepEvent_Progress:
			display.Update(v.Progress.GetStage(), v.Progress.GetDone(), v.Progress.GetTotal())
		case *localv1.SleepEvent_Asleep:
			asleep, result.Snapshot = true, view.NewSnapshot(v.Asleep)
		}
		return nil
	})
	if err == nil && !asleep {
		err = errors.New("the agent ended the call without a result: see its log")
	}
	return result, err
}

func (p *podCommands) wake() *cobra.Command {
	return &cobra.Command{
		Use:   "wake POD",
		Short: "Wake a pod that sleeps",
		Long: `Wake a pod that sleeps, and return when it runs. POD is as for "diapause sleep". A pod that does not
sleep stays as it is.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completePods,
		RunE:              p.run(func(ctx context.Context, args []string) error { return p.runWake(ctx, args[0]) }),
	}
}

func (p *podCommands) runWake(ctx context.Context, pod string) error {
	ctx, cancel := p.client.long(ctx)
	defer cancel()
	return p.client.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.Wake(ctx, &localv1.WakeRequest{Target: pod})
		if err != nil {
			return failed("wake", pod, err)
		}
		return p.console.print(view.NewWoken(r))
	})
}

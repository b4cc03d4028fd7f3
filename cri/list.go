package cri

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/sync/errgroup"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fillers is how many pods Pods queries at a time: each query runs a process of the runtime.
const fillers = 4

// Pods returns all pods of this node, including ended ones, newest first.
func (f *Finder) Pods(ctx context.Context) ([]*Pod, error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fillers)
	gone := make([]bool, len(pods))
	for i, p := range pods {
		g.Go(func() error {
			err := f.fill(gctx, p, f.tasks.processNow)
			gone[i] = isGone(err)
			if gone[i] {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	kept := pods[:0]
	for i, p := range pods {
		if !gone[i] {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// IDs returns the ids of all pods of this node, including ended ones. Unlike Pods it runs no process of the runtime,
// so that it can be called often.
func (f *Finder) IDs(ctx context.Context) (map[string]bool, error) {
	sandboxes, err := f.runtime.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", native(err))
	}
	ids := make(map[string]bool)
	for _, s := range sandboxes.GetItems() {
		ids[s.GetId()] = true
	}
	return ids, nil
}

// UIDs returns the UIDs of all pods of this node, including ended ones. Like IDs it runs no process of the runtime.
func (f *Finder) UIDs(ctx context.Context) (map[string]bool, error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	uids := make(map[string]bool)
	for _, p := range pods {
		uids[p.UID] = true
	}
	return uids, nil
}

// Unstarted returns the ids of the pods of RuntimeType whose sandbox has ended before any of their containers started.
// Like IDs it runs no process of the runtime.
func (f *Finder) Unstarted(ctx context.Context) ([]string, error) {
	pods, err := f.list(ctx, &criapi.PodSandboxFilter{
		State: &criapi.PodSandboxStateValue{State: criapi.PodSandboxState_SANDBOX_NOTREADY},
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var ids []string
	for _, p := range pods {
		if !p.unstarted() {
			continue
		}
		runtime, err := f.tasks.runtimeType(ctx, p.ID)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p, err)
		}
		if runtime == RuntimeType {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

// unstarted reports whether the pod has containers, and none has started.
func (p *Pod) unstarted() bool {
	started := func(x Container) bool { return x.State != StateCreated }
	return len(p.Containers) > 0 && !slices.ContainsFunc(p.Containers, started)
}

// Get returns the pod whose sandbox container has this full id. If there is none, the error is of kind ErrNotFound.
func (f *Finder) Get(ctx context.Context, id string) (*Pod, error) {
	pods, err := f.list(ctx, filterID(id))
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", id, err)
	}
	for _, p := range pods {
		if p.ID != id {
			continue
		}
		if err := f.fill(ctx, p, f.tasks.process); err != nil {
			return nil, fmt.Errorf("pod %s: %w", id, err)
		}
		return p, nil
	}
	return nil, fmt.Errorf("pod %s: %w", id, ErrNotFound)
}

// Running returns the ids of the pod's running containers, in order of creation. It asks the shim of each, because
// the CRI learns of an end only after the container has been deleted there. If there is no such pod, the error is of
// kind ErrNotFound.
func (f *Finder) Running(ctx context.Context, podID string) ([]string, error) {
	pods, err := f.list(ctx, filterID(podID))
	if err == nil && len(pods) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("containers of pod %s: %w", podID, err)
	}
	var ids []string
	for _, x := range pods[0].Containers {
		ok, err := f.runs(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("containers of pod %s: %w", podID, err)
		}
		if ok {
			ids = append(ids, x.ID)
		}
	}
	return ids, nil
}

// started returns the containers of a pod that run according to the CRI, and those that the CRI calls created but
// whose shim says that they run. The CRI learns of a start only when it is answered, and by then the process may have
// run for a while. Each question to a shim costs a run of runsc.
func (f *Finder) started(ctx context.Context, p *Pod) ([]Container, error) {
	var started []Container
	for _, x := range p.Containers {
		ok := x.State == StateRunning
		if x.State == StateCreated {
			var err error
			if ok, err = f.runs(ctx, x); err != nil {
				return nil, err
			}
		}
		if ok {
			started = append(started, x)
		}
	}
	return started, nil
}

// runs asks the shim whether a container runs, or is paused. While a container is being started, its shim may not
// answer; the container does not run yet then.
func (f *Finder) runs(ctx context.Context, x Container) (bool, error) {
	var ask asker
	switch x.State {
	case StateRunning:
		ask = f.tasks.process
	case StateCreated:
		ask = f.tasks.processNow
	default:
		return false, nil
	}
	p, err := ask(ctx, x.ID)
	if isGone(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("state of container %s: %w", x.ID, err)
	}
	switch p.GetStatus() {
	case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
		return true, nil
	}
	return false, nil
}

func filterID(id string) *criapi.PodSandboxFilter { return &criapi.PodSandboxFilter{Id: id} }

// list returns the pods with what containerd has in memory, newest first. It leaves out what fill adds.
func (f *Finder) list(ctx context.Context, filter *criapi.PodSandboxFilter) ([]*Pod, error) {
	sandboxes, err := f.runtime.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, native(err)
	}
	containers, err := f.runtime.ListContainers(ctx, &criapi.ListContainersRequest{
		Filter: &criapi.ContainerFilter{PodSandboxId: filter.GetId()},
	})
	if err != nil {
		return nil, native(err)
	}
	byID := make(map[string]*Pod)
	var pods []*Pod
	for _, s := range sandboxes.GetItems() {
		p := podOf(s)
		byID[p.ID] = p
		pods = append(pods, p)
	}
	for _, x := range containers.GetContainers() {
		if p := byID[x.GetPodSandboxId()]; p != nil {
			p.Containers = append(p.Containers, containerOf(x))
		}
	}
	for _, p := range pods {
		slices.SortStableFunc(p.Containers, func(a, b Container) int { return a.Created.Compare(b.Created) })
	}
	slices.SortStableFunc(pods, func(a, b *Pod) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return pods, nil
}

func podOf(s *criapi.PodSandbox) *Pod {
	return &Pod{
		ID:          s.GetId(),
		Name:        s.GetMetadata().GetName(),
		Namespace:   s.GetMetadata().GetNamespace(),
		UID:         s.GetMetadata().GetUid(),
		Handler:     s.GetRuntimeHandler(),
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
		Ready:       s.GetState() == criapi.PodSandboxState_SANDBOX_READY,
		Created:     time.Unix(0, s.GetCreatedAt()),
	}
}

func containerOf(x *criapi.Container) Container {
	return Container{
		ID:      x.GetId(),
		Name:    x.GetMetadata().GetName(),
		Image:   x.GetImage().GetImage(),
		State:   stateOf(x.GetState()),
		Created: time.Unix(0, x.GetCreatedAt()),
	}
}

func stateOf(s criapi.ContainerState) State {
	switch s {
	case criapi.ContainerState_CONTAINER_CREATED:
		return StateCreated
	case criapi.ContainerState_CONTAINER_RUNNING:
		return StateRunning
	case criapi.ContainerState_CONTAINER_EXITED:
		return StateExited
	default:
		return StateUnknown
	}
}

// fill adds what needs a query for each pod: runtime type, IP, exit codes, and the process as ask finds it.
func (f *Finder) fill(ctx context.Context, p *Pod, ask asker) error {
	status, err := f.runtime.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: p.ID})
	if err != nil {
		return native(err)
	}
	p.IP = status.GetStatus().GetNetwork().GetIp()
	if p.Runtime, err = f.tasks.runtimeType(ctx, p.ID); err != nil {
		return err
	}
	if p.Ready {
		if p.SandboxPID, err = sandboxPID(ctx, p.ID, ask); err != nil {
			return err
		}
	}
	return f.exitCodes(ctx, p)
}

func (f *Finder) exitCodes(ctx context.Context, p *Pod) error {
	for i := range p.Containers {
		x := &p.Containers[i]
		if x.State != StateExited {
			continue
		}
		r, err := f.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: x.ID})
		if err := native(err); isGone(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("status of container %s: %w", x.ID, err)
		}
		x.ExitCode = r.GetStatus().GetExitCode()
	}
	return nil
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri/plan"
	"github.com/google/uuid"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// undoTimeout bounds the removal of a pod that could not be started completely.
const undoTimeout = 30 * time.Second

// RunOptions say how a pod made from a record differs from the recorded pod.
type RunOptions struct {
	Name      string // of the new pod
	Namespace string // empty: the recorded one
	// Handler is the runtime handler; empty: the recorded one.
	Handler string
	// Annotations are added to the recorded ones, and override them.
	Annotations map[string]string
	// Allow is what the record may ask for beyond what every record may.
	Allow []plan.Allowance
	// Progress, if set, is called before each step. It is called from one goroutine.
	Progress func(stage string)
}

// Runner makes new pods from records, and removes pods and containers, as a kubelet would.
type Runner struct {
	runtime criapi.RuntimeServiceClient
	daemon  *Daemon
	pods    *Finder
	logRoot string // of all pods
}

// RunRestored makes a new pod from a recorded configuration, as a kubelet would: it creates the sandbox and the
// containers, and starts these in order. The pod has its own UID and log directory. Its annotations decide whether it
// is restored or starts anew. If anything fails, RunRestored removes the pod, and the error says why. If the record
// asks for something that o.Allow does not name, the error is of kind plan.ErrNotAllowed; if it names a runtime
// handler that is not Diapause's, of kind ErrOtherRuntime.
func (r *Runner) RunRestored(ctx context.Context, rec snapshot.Pod, o RunOptions) (*Pod, error) {
	pod, err := r.runRestored(ctx, rec, o)
	if err != nil {
		return nil, fmt.Errorf("start pod %.80q: %w", o.Name, err)
	}
	return pod, nil
}

func (r *Runner) runRestored(ctx context.Context, rec snapshot.Pod, o RunOptions) (pod *Pod, err error) {
	p, err := plan.Of(rec, plan.Identity{
		Name: o.Name, Namespace: o.Namespace, UID: uuid.NewString(),
		LogRoot: r.logRoot, Annotations: o.Annotations, Allow: o.Allow, Occupied: occupied,
	})
	if err != nil {
		return nil, err
	}
	if o.Handler != "" {
		p.Handler = o.Handler
	}
	if err := r.daemon.checkHandler(ctx, p.Handler); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	id, err := r.run(ctx, p, o.Progress)
	if err == nil {
		pod, err = r.pods.Get(ctx, id)
	}
	if err != nil {
		if undone := r.undo(ctx, id, p.Sandbox.LogDirectory); undone != nil {
			err = fmt.Errorf("%w; and then: %w", err, undone)
		}
		return nil, err
	}
	return pod, nil
}

// run carries out a plan. It returns the id of the sandbox once there is one, even with an error.
func (r *Runner) run(ctx context.Context, p *plan.Plan, progress func(string)) (string, error) {
	if err := makeLogDirectories(p); err != nil {
		return "", err
	}
	progress("sandbox")
	s, err := r.runtime.RunPodSandbox(ctx, &criapi.RunPodSandboxRequest{Config: p.Sandbox, RuntimeHandler: p.Handler})
	if err != nil {
		return "", fmt.Errorf("run sandbox: %w", native(err))
	}
	id := s.GetPodSandboxId()
	var containers []string
	for _, config := range p.Containers {
		progress("create " + config.Metadata.Name)
		made, err := r.runtime.CreateContainer(ctx,
			&criapi.CreateContainerRequest{PodSandboxId: id, Config: config, SandboxConfig: p.Sandbox})
		if err != nil {
			return id, fmt.Errorf("create container %s: %w", config.Metadata.Name, native(err))
		}
		containers = append(containers, made.GetContainerId())
	}
	for i, x := range containers {
		name := p.Containers[i].Metadata.Name
		progress("start " + name)
		if _, err := r.runtime.StartContainer(ctx, &criapi.StartContainerRequest{ContainerId: x}); err != nil {
			return id, fmt.Errorf("start container %s: %w", name, native(err))
		}
	}
	return id, nil
}

func makeLogDirectories(p *plan.Plan) error {
	for _, config := range p.Containers {
		dir := filepath.Dir(filepath.Join(p.Sandbox.LogDirectory, config.LogPath))
		if config.LogPath == "" {
			dir = p.Sandbox.LogDirectory
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
	}
	return nil
}

// occupied reports whether a cgroup of this node has processes of its own.
func occupied(cgroup string) bool {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory"} { // of cgroup v2, of v1
		procs, err := os.ReadFile(filepath.Join(top, cgroup, "cgroup.procs"))
		if err == nil && len(procs) > 0 {
			return true
		}
	}
	return false
}

// undo removes what a failed start has left. It has its own time limit, so that it works after ctx has ended.
func (r *Runner) undo(ctx context.Context, id, logs string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var err error
	if id != "" {
		err = r.RemovePod(ctx, id)
	}
	return errors.Join(err, os.RemoveAll(logs))
}

// Containerd may refuse to remove what it will remove a moment later: a shim that is busy with another container of the
// pod does not answer it within two seconds, and a container whose end it is still recording counts as running, but
// cannot be stopped any more. A kubelet then tries again, whatever the error.
const (
	removeAttempts = 10
	removePause    = time.Second
)

// again calls remove until it succeeds.
func again(ctx context.Context, remove func(context.Context) error) (err error) {
	for range removeAttempts {
		if err = remove(ctx); err == nil || !pause(ctx, removePause) {
			break
		}
	}
	return err
}

// RemovePod stops a pod and removes it. If the pod is gone already, that is no error.
func (r *Runner) RemovePod(ctx context.Context, id string) error {
	return again(ctx, func(ctx context.Context) error { return r.removePod(ctx, id) })
}

func (r *Runner) removePod(ctx context.Context, id string) error {
	_, err := r.runtime.StopPodSandbox(ctx, &criapi.StopPodSandboxRequest{PodSandboxId: id})
	if err := unlessGone(err, "stop pod", id); err != nil {
		return err
	}
	_, err = r.runtime.RemovePodSandbox(ctx, &criapi.RemovePodSandboxRequest{PodSandboxId: id})
	return unlessGone(err, "remove pod", id)
}

// unlessGone returns an error of containerd, unless the object is gone.
func unlessGone(err error, doing, id string) error {
	if err := native(err); err != nil && !isGone(err) {
		return fmt.Errorf("%s %s: %w", doing, id, err)
	}
	return nil
}

// RemoveContainer removes a container, and ends it first if it runs. If the container is gone already, that is no
// error.
func (r *Runner) RemoveContainer(ctx context.Context, id string) error {
	return again(ctx, func(ctx context.Context) error { return r.removeContainer(ctx, id) })
}

func (r *Runner) removeContainer(ctx context.Context, id string) error {
	_, err := r.runtime.RemoveContainer(ctx, &criapi.RemoveContainerRequest{ContainerId: id})
	return unlessGone(err, "remove container", id)
}

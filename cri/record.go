package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri/plan"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// info is the part of containerd's verbose status that a record keeps.
type info struct {
	Config json.RawMessage `json:"config"`
}

// Recorder tells what a pod and its containers were made from.
type Recorder struct {
	runtime criapi.RuntimeServiceClient
	images  criapi.ImageServiceClient
	pods    *Finder
}

// Record returns the configuration that the pod and its running containers were made from. The containers are in
// order of creation. If there is no such pod, the error is of kind ErrNotFound. If no container runs, it is of kind
// ErrNotRunning.
func (r *Recorder) Record(ctx context.Context, podID string) (snapshot.Pod, error) {
	rec, err := r.record(ctx, podID)
	if err != nil {
		return snapshot.Pod{}, fmt.Errorf("record pod %s: %w", podID, err)
	}
	return rec, nil
}

func (r *Recorder) record(ctx context.Context, podID string) (snapshot.Pod, error) {
	var rec snapshot.Pod
	pods, err := r.pods.list(ctx, filterID(podID))
	if err != nil {
		return rec, err
	}
	if len(pods) != 1 {
		return rec, ErrNotFound
	}
	running, err := r.pods.started(ctx, pods[0])
	if err != nil {
		return rec, err
	}
	if !pods[0].Ready || len(running) == 0 {
		return rec, fmt.Errorf("%s has no running container: %w", pods[0], ErrNotRunning)
	}
	rec.RuntimeHandler = pods[0].Handler
	if rec.Sandbox, err = r.sandboxConfig(ctx, pods[0].ID); err != nil {
		return rec, err
	}
	for _, x := range running {
		s, err := r.containerStatus(ctx, x.ID)
		if err != nil {
			return rec, fmt.Errorf("container %s: %w", x.Name, err)
		}
		rec.Containers = append(rec.Containers, snapshot.Container{Name: x.Name, Config: s.config, Image: s.image})
	}
	rec.Ended, err = r.recordEnded(ctx, pods[0], running)
	return rec, err
}

// recordEnded returns the containers that have ended and do not run again: for each name, the last one.
func (r *Recorder) recordEnded(ctx context.Context, p *Pod,
	running []Container,
) (all []snapshot.EndedContainer, err error) {
	for _, x := range lastEnded(p.Containers, running) {
		s, err := r.containerStatus(ctx, x.ID)
		if isGone(err) {
			continue // the container has been removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", x.Name, err)
		}
		all = append(all, snapshot.EndedContainer{
			Container: snapshot.Container{Name: x.Name, Config: s.config, Image: s.image},
			ExitCode:  s.exitCode,
		})
	}
	return all, nil
}

// lastEnded returns the containers that have exited, are the last with their name, and do not run again. Containers
// are in order of creation. If a record cannot hold all of them beside the running ones, the newest are kept.
func lastEnded(containers, running []Container) (ended []Container) {
	for i, x := range containers {
		same := func(y Container) bool { return y.Name == x.Name }
		if x.State == StateExited && !slices.ContainsFunc(containers[i+1:], same) && !slices.ContainsFunc(running, same) {
			ended = append(ended, x)
		}
	}
	return ended[max(0, len(ended)-max(0, plan.MaxContainers-len(running))):]
}

func (r *Recorder) sandboxConfig(ctx context.Context, id string) (json.RawMessage, error) {
	var answer *criapi.PodSandboxStatusResponse
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		answer, err = r.runtime.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		return native(err)
	})
	if err != nil {
		return nil, err
	}
	return configOf(answer.GetInfo(), &criapi.PodSandboxConfig{})
}

// containerStatus is what a record has of a container.
type containerStatus struct {
	config   json.RawMessage
	image    string // see Recorder.Image
	exitCode int32  // if it has ended
}

func (r *Recorder) containerStatus(ctx context.Context, id string) (s containerStatus, err error) {
	answer, err := r.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return s, native(err)
	}
	s.exitCode = answer.GetStatus().GetExitCode()
	if s.image, err = r.imageDigest(ctx, answer.GetStatus()); err != nil {
		return s, fmt.Errorf("its image: %w", native(err))
	}
	s.config, err = configOf(answer.GetInfo(), &criapi.ContainerConfig{})
	return s, err
}

// configOf returns the configuration in a verbose status, after checking that it decodes into the given message.
func configOf(verbose map[string]string, into any) (json.RawMessage, error) {
	var i info
	if err := json.Unmarshal([]byte(verbose["info"]), &i); err != nil {
		return nil, fmt.Errorf("decode containerd's verbose status: %w", err)
	}
	if len(i.Config) == 0 || string(i.Config) == "null" {
		return nil, fmt.Errorf("containerd's verbose status holds no configuration")
	}
	if err := json.Unmarshal(i.Config, into); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	return i.Config, nil
}

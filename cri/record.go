package cri

import (
	"context"
	"encoding/json"
	"fmt"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// info is the part of containerd's verbose status that is recorded.
type info struct {
	Config json.RawMessage `json:"config"`
}

// Record returns the configuration that the pod and its running containers were made from, the
// containers in order of creation. Its error is of kind ErrNotFound, or ErrNotRunning when no
// container runs.
func (c *Client) Record(ctx context.Context, podID string) (snapshot.Pod, error) {
	rec, err := c.record(ctx, podID)
	if err != nil {
		return snapshot.Pod{}, fmt.Errorf("record pod %s: %w", podID, err)
	}
	return rec, nil
}

func (c *Client) record(ctx context.Context, podID string) (snapshot.Pod, error) {
	var rec snapshot.Pod
	pods, err := c.list(ctx, filterID(podID))
	if err != nil {
		return rec, err
	}
	if len(pods) != 1 {
		return rec, ErrNotFound
	}
	running, err := c.started(ctx, pods[0])
	if err != nil {
		return rec, err
	}
	if !pods[0].Ready || len(running) == 0 {
		return rec, fmt.Errorf("%s has no running container: %w", pods[0], ErrNotRunning)
	}
	rec.RuntimeHandler = pods[0].Handler
	if rec.Sandbox, err = c.sandboxConfig(ctx, pods[0].ID); err != nil {
		return rec, err
	}
	for _, x := range running {
		config, err := c.containerConfig(ctx, x.ID)
		if err != nil {
			return rec, fmt.Errorf("container %s: %w", x.Name, err)
		}
		rec.Containers = append(rec.Containers, snapshot.Container{Name: x.Name, Config: config})
	}
	return rec, nil
}

func (c *Client) sandboxConfig(ctx context.Context, id string) (json.RawMessage, error) {
	r, err := c.runtime.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, native(err)
	}
	return configOf(r.GetInfo(), &criapi.PodSandboxConfig{})
}

func (c *Client) containerConfig(ctx context.Context, id string) (json.RawMessage, error) {
	r, err := c.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, native(err)
	}
	return configOf(r.GetInfo(), &criapi.ContainerConfig{})
}

// configOf returns the configuration in a verbose status, once it is known to decode into the
// given message.
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

package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Handler is a runtime handler in the configuration of the running containerd.
type Handler struct {
	Type                 string         `json:"runtimeType"`
	Path                 string         `json:"runtimePath"` // of the shim; empty: found by its type
	PodAnnotations       []string       `json:"PodAnnotations"`
	ContainerAnnotations []string       `json:"ContainerAnnotations"`
	Options              map[string]any `json:"options"`
}

// Handlers returns the runtime handlers that containerd runs with, by name. Its configuration files may have changed
// since it started.
func (c *Client) Handlers(ctx context.Context) (map[string]Handler, error) {
	r, err := c.runtime.Status(ctx, &criapi.StatusRequest{Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("runtime handlers of containerd: %w", native(err))
	}
	handlers, err := parseHandlers(r.GetInfo()["config"])
	if err != nil {
		return nil, fmt.Errorf("runtime handlers of containerd: %w", err)
	}
	return handlers, nil
}

// parseHandlers reads the configuration that containerd reports.
func parseHandlers(config string) (map[string]Handler, error) {
	var c struct {
		Containerd struct {
			Runtimes map[string]Handler `json:"runtimes"`
		} `json:"containerd"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	if c.Containerd.Runtimes == nil {
		return nil, errors.New("its configuration names none")
	}
	return c.Containerd.Runtimes, nil
}

package cri

import (
	"cmp"
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

// runtimes is the part of containerd's configuration that has the runtime handlers.
type runtimes struct {
	Default string             `json:"defaultRuntimeName"` // the handler of pods that name none
	All     map[string]Handler `json:"runtimes"`
}

// Daemon tells which containerd runs, and with which configuration.
type Daemon struct{ runtime criapi.RuntimeServiceClient }

// Version returns the name and the version of the container runtime, for example "containerd v2.4.2".
func (d *Daemon) Version(ctx context.Context) (string, error) {
	r, err := d.runtime.Version(ctx, &criapi.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("version of containerd: %w", native(err))
	}
	return r.GetRuntimeName() + " " + r.GetRuntimeVersion(), nil
}

// Handlers returns the runtime handlers that containerd runs with, by name. Its configuration files may have changed
// since it started.
func (d *Daemon) Handlers(ctx context.Context) (map[string]Handler, error) {
	r, err := d.runtimes(ctx)
	return r.All, err
}

func (d *Daemon) runtimes(ctx context.Context) (runtimes, error) {
	info, err := d.Info(ctx)
	if err != nil {
		return runtimes{}, fmt.Errorf("runtime handlers of containerd: %w", err)
	}
	return parseRuntimes(info["config"])
}

// Info returns what containerd runs with, as JSON: "config" is its configuration, "cniconfig" that of its networks.
func (d *Daemon) Info(ctx context.Context) (map[string]string, error) {
	r, err := d.runtime.Status(ctx, &criapi.StatusRequest{Verbose: true})
	return r.GetInfo(), native(err)
}

// parseRuntimes reads the configuration that containerd reports.
func parseRuntimes(config string) (runtimes, error) {
	var c struct {
		Containerd runtimes `json:"containerd"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return runtimes{}, fmt.Errorf("runtime handlers of containerd: its configuration: %w", err)
	}
	if c.Containerd.All == nil {
		return runtimes{}, errors.New("runtime handlers of containerd: its configuration names none")
	}
	return c.Containerd, nil
}

// checkHandler returns an error unless pods with a handler run under Diapause.
func (d *Daemon) checkHandler(ctx context.Context, name string) error {
	all, err := d.runtimes(ctx)
	if err != nil {
		return err
	}
	return all.check(name)
}

func (r runtimes) check(asked string) error {
	if r.All[cmp.Or(asked, r.Default)].Type == RuntimeType {
		return nil
	}
	return fmt.Errorf("runtime handler %.80q of the recorded pod: %w: this node's containerd has no such handler of "+
		"runtime type %s, and a snapshot is restored under no other", asked, ErrOtherRuntime, RuntimeType)
}

package shim

import (
	"context"

	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
)

// registerService registers gVisor's task service as gVisor's own plugin package does, with two differences. Its
// publisher of events does not fail, and the process does not outlive its container. It runs in the bundle's
// directory. Before the service is made, it calls ready.
func registerService(ready func()) {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			p, err := ic.GetByID(plugins.EventPlugin, "publisher")
			if err != nil {
				return nil, err
			}
			s, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			ready()
			go endForgotten(".")
			return gvisor.NewShimRedirector(ic.Context, patient{p.(shim.Publisher)}, s.(shutdown.Service))
		},
	})
}

// patient publishes events even while containerd is away. GVisor's shim panics if it cannot publish an event, and
// once containerd is back the container ends with the shim. Containerd's publisher returns the failure and still
// delivers the event later: it tries five more times, within 15 seconds.
type patient struct{ shim.Publisher }

// Publish implements events.Publisher. It always succeeds. The exit of a container that never started in a sandbox that
// is not restored is not published, see interrupted.go.
func (p patient) Publish(ctx context.Context, topic string, event events.Event) error {
	if isExitOfUnstarted(event) {
		return nil
	}
	if err := p.Publisher.Publish(ctx, topic, event); err != nil {
		log.L.WithError(err).Warnf("containerd has not heard of an event yet: %s", topic)
	}
	return nil
}

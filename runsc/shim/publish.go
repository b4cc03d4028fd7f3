package shim

import (
	"context"
	"log/slog"

	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
)

// retryingPublisher publishes events even while containerd is away. GVisor's shim panics if it cannot publish an event,
// and once containerd is back the container ends with the shim. Containerd's publisher returns the failure and still
// delivers the event later: it tries five more times, within 15 seconds.
type retryingPublisher struct {
	shim.Publisher
	process *process
}

// Publish implements events.Publisher. It always succeeds.
func (p retryingPublisher) Publish(ctx context.Context, topic string, event events.Event) error {
	if !p.process.publishes(event) {
		return nil
	}
	if err := p.Publisher.Publish(ctx, topic, event); err != nil {
		slog.Warn("containerd has not heard of an event yet", "topic", topic, "error", err)
	}
	return nil
}

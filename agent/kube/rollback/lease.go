package rollback

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
)

// Config is what a Keeper or a Watcher works with.
type Config struct {
	Objects *objects.Objects
	Lease   client.ObjectKey // of the controller
	Found   func()           // is called when it is found that the cluster was brought back; must not block
	Logger  *slog.Logger
}

// state reads the Lease from the API server.
func (c Config) state(ctx context.Context) (state, error) {
	lease := new(coordinationv1.Lease)
	if err := c.Objects.Live.Get(ctx, c.Lease, lease); err != nil {
		return state{}, fmt.Errorf("read Lease %s: %w", c.Lease, err)
	}
	return stateOf(lease, c.now())
}

// now is the API server's time if that is known. Marks are left only if it is.
func (c Config) now() time.Time {
	now, err := c.Objects.Clock.Now()
	if err != nil {
		return time.Now()
	}
	return now
}

// tell says that something is not swept, in the log and by an event on this process's node.
func (c Config) tell(err error) {
	c.Logger.Error("not swept", "error", err)
	c.Found()
	c.Objects.Events.Node(notice.NotSwept, err)
}

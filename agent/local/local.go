// Package local serves the agent's two gRPC services on a socket that only root may use: one for operators, behind the
// command line (service.go), and one for the shims (shimservice.go). errors.go maps errors to status codes.
package local

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/asleep"
	"diapause.dev/agent/backlog"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// Config is what the services need, and what they report about the agent.
type Config struct {
	Version, Node, Store, StateDir string // as in agent.Config
	Containerd                     string // containerd's socket
	RunscConfig                    string // the shim's configuration file
	Started                        time.Time
	Runtime                        Runtime
	Facts                          func(context.Context) (snapshot.Facts, error) // of this node
	Checkpoints                    *checkpoint.Checkpoints
	Restores                       *restore.Restores
	Wakes                          *restore.Wakes
	Reminders                      *asleep.Reminders
	NewPods                        *newpods.Starter
	Lives                          *lives.Lives
	Sleeps                         *sleep.Sleeps
	Admission                      *admission.Queue // of wakes
	Stores                         *snapshots.Stores
	Catalog                        *snapshots.Catalog
	Backlog                        *backlog.Backlog
	Sandboxes                      *keylock.Locks // locked by checkpoints
	Cluster                        Cluster        // or nil
	Metrics                        Metrics
	Life                           *lifetime.Life
	Logger                         *slog.Logger
}

// Runtime is what the services need of containerd. *cri.Client implements it.
type Runtime interface {
	Version(ctx context.Context) (string, error)
	IDs(ctx context.Context) (map[string]bool, error)
	Info(ctx context.Context) (map[string]string, error)
	Pods(ctx context.Context) ([]*cri.Pod, error)
}

// Metrics counts the restores that are refused.
type Metrics interface{ Refused() }

// Cluster decides about pods if the node belongs to a cluster.
type Cluster interface {
	// Choose decides about a pod whose sandbox is being created. It also reads podsnapshotv1.AnnotationRestoreFrom. It
	// calls past, which returns the same each time, if the pod might be restored. An error says why a wanted restore is
	// refused. Even then, the choice's Fail is valid.
	Choose(ctx context.Context, pod snapshot.PodRef, past func() (lives.Past, error)) (restore.Choice, error)
	// Again completes the choice for a pod that is restored from its own snapshot, because it slept when the node went
	// down. An error says why that is not possible now.
	Again(ctx context.Context, pod snapshot.PodRef, choice restore.Choice) (restore.Choice, error)
	// Restored reports that a pod is restored: all its containers have been started. The runtime learns that the last
	// container has started only after Restored has returned or ctx is done. After an error the caller must call again.
	Restored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error
	// MayEnd is called before a container of a pod is told to end. It answers by the end of ctx. If the pod is to be saved
	// before, MayEnd begins that, and returns how long it may still take. Saved means that the pod has been saved and its
	// sandbox ended. Otherwise its containers may end.
	MayEnd(ctx context.Context, pod snapshot.PodRef) (wait time.Duration, saved bool)
	// NotSwept returns what is not swept because the cluster was brought back from an older backup, and why. It is empty
	// if everything is. It does not wait.
	NotSwept() string
	// Confirmed is the method of checkpoint.Cluster.
	Confirmed(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error
}

// StopTime is how long requests under way may take to end after the agent is told to stop. Their contexts are already
// done then. It is less than the grace period of the DaemonSet's pods.
const StopTime = 20 * time.Second

// Serve serves both services until ctx is done. Then it ends c.Life, and returns when all requests have ended.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	defer context.AfterFunc(ctx, func() { c.Life.End(errkind.ErrStopping) })()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20))
	localv1.RegisterAgentServer(s, &service{Config: c, kernel: sync.OnceValues(kernelFacts)})
	localv1.RegisterShimServer(s, &shimService{Config: c, decisions: newDecisions()})
	stop := context.AfterFunc(ctx, func() {
		kill := time.AfterFunc(StopTime, s.Stop)
		s.GracefulStop()
		kill.Stop()
	})
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("local service: %w", err)
	}
	s.GracefulStop()                // waits for the call above
	c.Life.End(errkind.ErrStopping) // the function above may not have come to it yet
	return nil
}

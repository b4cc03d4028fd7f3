package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Defaults of Options.
const (
	DefaultAddress   = "/run/containerd/containerd.sock"
	DefaultNamespace = "k8s.io"
	DefaultLogRoot   = "/var/log/pods"
)

// maxMessage bounds one answer of containerd, in bytes. Containerd itself sends no more than that.
const maxMessage = 16 << 20

// Options say which containerd to speak to. The zero value means the defaults.
type Options struct {
	// Address is the path of containerd's socket.
	Address string
	// Namespace is the containerd namespace that holds the pods.
	Namespace string
	// LogRoot is the directory under which RunRestored makes the log directories of new pods.
	LogRoot string
}

// Client is a client of this node's containerd. Its methods may be called concurrently. When containerd has been
// restarted, it reconnects by itself. It has one part for each subject, over one connection.
type Client struct {
	conn *grpc.ClientConn

	*Daemon      // which containerd it is
	*Tasks       // a sandbox's task
	*Finder      // which pods there are, and their state
	*Recorder    // what they were made from
	*Killer      // their end
	*Leases      // pauses with a lease
	*SleepOrders // their sleep
	*Runner      // new pods, and the removal of pods
}

// Dial returns a client of the containerd at o.Address. It first waits for an answer of containerd, and fails if
// there is none before ctx ends.
func Dial(ctx context.Context, o Options) (*Client, error) {
	o = o.withDefaults()
	conn, err := grpc.NewClient("unix://"+o.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(awaitContainerd),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", o.Address, err)
	}
	c := assemble(conn, o)
	if _, err := c.Daemon.runtime.Version(ctx, &criapi.VersionRequest{}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("containerd at %s: ask for its version: %w", o.Address, native(err))
	}
	return c, nil
}

// assemble creates the parts of a client over a connection. Each part knows only those before it.
func assemble(conn *grpc.ClientConn, o Options) *Client {
	runtime := criapi.NewRuntimeServiceClient(conn)
	daemon := &Daemon{runtime: runtime}
	tasks := &Tasks{
		client: tasksapi.NewTasksClient(conn), containers: containersapi.NewContainersClient(conn), namespace: o.Namespace,
	}
	pods := &Finder{runtime: runtime, tasks: tasks}
	killer := &Killer{tasks: tasks, pods: pods}
	return &Client{
		conn:        conn,
		Daemon:      daemon,
		Tasks:       tasks,
		Finder:      pods,
		Recorder:    &Recorder{runtime: runtime, images: criapi.NewImageServiceClient(conn), pods: pods},
		Killer:      killer,
		Leases:      &Leases{tasks: tasks, killer: killer},
		SleepOrders: &SleepOrders{tasks: tasks, killer: killer},
		Runner:      &Runner{runtime: runtime, daemon: daemon, pods: pods, logRoot: o.LogRoot},
	}
}

// reconnectLimit is how long a call waits for a containerd that is away: longer than a restart of containerd takes.
const reconnectLimit = 5 * time.Second

// awaitContainerd is an interceptor that makes a call wait while there is no connection, or while the CRI has not begun
// to serve, for at most reconnectLimit. Otherwise calls would fail for a while after a restart of containerd.
func awaitContainerd(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	waiting, cancel := context.WithTimeout(ctx, reconnectLimit)
	defer cancel()
	for {
		awaitConnection(waiting, conn)
		err := invoke(ctx, method, req, reply, conn, opts...)
		if !beginning(err) || !pause(waiting, reconnect.BaseDelay) {
			return err
		}
	}
}

// awaitConnection waits until there is a connection, or until ctx ends.
func awaitConnection(ctx context.Context, conn *grpc.ClientConn) {
	for s := conn.GetState(); s != connectivity.Ready && s != connectivity.Shutdown; s = conn.GetState() {
		conn.Connect()
		if !conn.WaitForStateChange(ctx, s) {
			return
		}
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// beginning reports whether containerd's CRI has refused a call because it has not begun to serve (containerd,
// internal/cri/instrument).
func beginning(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "server is not initialized yet")
}

// reconnect keeps the pauses between attempts short, because the socket is local.
var reconnect = backoff.Config{
	BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
	MaxDelay: 2 * time.Second,
}

func (o Options) withDefaults() Options {
	if o.Address == "" {
		o.Address = DefaultAddress
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.LogRoot == "" {
		o.LogRoot = DefaultLogRoot
	}
	return o
}

// Close ends the connection. Calls under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// native turns a gRPC status into an error whose kind errors.Is can tell, for example ErrNotFound.
func native(err error) error { return errgrpc.ToNative(err) }

// isGone reports whether err means that the requested object does not exist.
func isGone(err error) bool { return errdefs.IsNotFound(err) }

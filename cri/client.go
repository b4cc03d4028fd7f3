package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
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
// restarted, it reconnects by itself.
type Client struct {
	conn       *grpc.ClientConn
	runtime    criapi.RuntimeServiceClient
	tasks      tasksapi.TasksClient
	containers containersapi.ContainersClient
	images     criapi.ImageServiceClient
	namespace  string
	logRoot    string
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
	c := &Client{
		conn:       conn,
		runtime:    criapi.NewRuntimeServiceClient(conn),
		tasks:      tasksapi.NewTasksClient(conn),
		containers: containersapi.NewContainersClient(conn),
		images:     criapi.NewImageServiceClient(conn),
		namespace:  o.Namespace,
		logRoot:    o.LogRoot,
	}
	if _, err := c.runtime.Version(ctx, &criapi.VersionRequest{}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("containerd at %s: ask for its version: %w", o.Address, native(err))
	}
	return c, nil
}

// Version returns the name and the version of the container runtime, for example "containerd v2.4.2".
func (c *Client) Version(ctx context.Context) (string, error) {
	r, err := c.runtime.Version(ctx, &criapi.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("version of containerd: %w", native(err))
	}
	return r.GetRuntimeName() + " " + r.GetRuntimeVersion(), nil
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

// scoped returns ctx with the containerd namespace, which the task service needs.
func (c *Client) scoped(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, c.namespace)
}

// native turns a gRPC status into an error whose kind errors.Is can tell, for example ErrNotFound.
func native(err error) error { return errgrpc.ToNative(err) }

// isGone reports whether err means that the requested object does not exist.
func isGone(err error) bool { return errdefs.IsNotFound(err) }

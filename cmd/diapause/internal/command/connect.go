package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	localv1 "diapause.dev/api/local/v1"
)

// maxMessage bounds one answer of the agent, in bytes: a list of many snapshots is large.
const maxMessage = 64 << 20

// queryTimeout is the default time limit for queries, which the agent answers at once.
const queryTimeout = time.Minute

// client asks the agent.
type client struct {
	socket  string
	timeout time.Duration // 0: queryTimeout for queries, none for long operations
}

// connect connects to the agent. The caller closes the connection. If nothing listens, connect fails at once, and
// says what to do.
func (c *client) connect(ctx context.Context) (localv1.AgentClient, *grpc.ClientConn, error) {
	if err := c.probe(ctx); err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient("passthrough:///agent",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's mode and its peers' credentials guard it
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", c.socket, err)
	}
	return localv1.NewAgentClient(conn), conn, nil
}

func (c *client) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", c.socket)
}

// probe dials once, for an error that says why it fails.
func (c *client) probe(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err == nil {
		return conn.Close()
	}
	advice := cmp.Or(hint(err), `start it as root with "diapause-agent", or name its socket with --socket`)
	if errors.Is(err, fs.ErrPermission) {
		advice = "only root may use it: run this command as root"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the message names the address already
	}
	return fmt.Errorf("cannot reach the agent at %s: %w\n%s", c.socket, err, advice)
}

// ask connects, runs f and closes the connection.
func (c *client) ask(ctx context.Context, f func(localv1.AgentClient) error) error {
	agent, conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	err = f(agent)
	if e := conn.Close(); err == nil && e != nil {
		err = fmt.Errorf("close connection to %s: %w", c.socket, e)
	}
	return err
}

// query returns the context for a query, which the agent answers at once.
func (c *client) query(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.within(ctx, queryTimeout)
}

// within returns a context that ends after d, unless --timeout says otherwise.
func (c *client) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if c.timeout > 0 {
		d = c.timeout
	}
	return context.WithTimeout(ctx, d)
}

// long returns the context for an operation without a time limit, unless --timeout sets one.
func (c *client) long(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout > 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return context.WithCancel(ctx)
}

// receive passes every event of a stream to f until the stream ends. If f fails, receive returns early, and the
// caller must cancel the call's context.
func receive[E any](s grpc.ServerStreamingClient[E], f func(*E) error) error {
	for {
		e, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(e)
		}
		if err != nil {
			return err
		}
	}
}

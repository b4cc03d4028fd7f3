package shim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/fifo"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// ServeAction is the first argument of a process that serves a container, see Serve.
const ServeAction = "serve"

const (
	// socketFD is the file descriptor by which a process that serves inherits its socket, see launch.
	socketFD = 3
	// ttrpcAddress is the variable in which containerd gives the address that events are sent to.
	ttrpcAddress = "TTRPC_ADDRESS"
	// gcPercent is containerd's choice for its shims.
	gcPercent = 40
	// endLimit bounds what is done at the end of the process.
	endLimit = 5 * time.Second
	// signalRoom is how many signals may wait; one that does not fit stands for those that do.
	signalRoom = 32
)

// Serve serves containerd's task service for one container, or for a pod, until that is over. It runs in the
// bundle's directory, with the arguments that command makes.
//
// It stands for what containerd's own package shim does in such a process (its function Run without an action), and
// behaves alike, with one difference: that package collects garbage every 30 seconds, for as long as it lives. In the
// shims of two hundred pods, that alone takes 4 % of a processor.
func Serve(ctx context.Context, args []string) error {
	debug.SetGCPercent(gcPercent)
	f := flag.CommandLine // where gVisor's shim looks for the id
	f.Init(RuntimeType, flag.ContinueOnError)
	namespace := f.String("namespace", "", "containerd's namespace of the container")
	f.String("address", "", "containerd's socket")
	f.String("id", "", "id of the container, or of the sandbox of a pod")
	debugging := f.Bool("debug", false, "write more to the log")
	if err := f.Parse(args); err != nil {
		return err
	}
	signals := make(chan os.Signal, signalRoom)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGPIPE, unix.SIGUSR1)
	if err := reaper.SetSubreaper(1); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	ctx = context.WithValue(namespaces.WithNamespace(ctx, *namespace), shim.OptsKey{},
		shim.Opts{Debug: *debugging})
	ctx, end := shutdown.WithShutdown(ctx)
	defer end.Shutdown()
	ctx, err := openLog(ctx, *debugging)
	if err != nil {
		return err
	}
	failed, err := serveTasks(ctx, end)
	if err != nil {
		return err
	}
	if err := handleSignals(signals, failed, end); err != nil {
		slog.Error("the process ends", "error", err)
		return err
	}
	removeSocket()
	select {
	case <-end.Done():
		return nil
	case <-time.After(endLimit):
		return errors.New("what is to be done at its end takes too long")
	}
}

// openLog has the log written to the bundle's pipe, which containerd reads: what the libraries of containerd and gVisor
// write by containerd's logger, and what we write by slog.
func openLog(ctx context.Context, debugging bool) (context.Context, error) {
	defer holdLog()()
	pipe, err := fifo.OpenFifoDup2(ctx, logPipe, unix.O_WRONLY, 0o700, unix.Stderr)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	entry := log.L.WithField("runtime", RuntimeType)
	if err := log.SetFormat(log.TextFormat); err != nil {
		return nil, err
	}
	if debugging {
		if err := log.SetLevel("debug"); err != nil {
			return nil, err
		}
	}
	entry.Logger.SetOutput(pipe)
	slog.SetDefault(slog.New(libraryLogger{entry: entry}))
	return log.WithLogger(ctx, entry), nil
}

// serveTasks starts to serve gVisor's task service, with our extension, on the inherited socket. If that can no longer
// be served, failed gets why.
func serveTasks(ctx context.Context, end shutdown.Service) (failed <-chan error, err error) {
	p := new(process)
	p.setExtension(func(next extension.TaskServiceExt) *router { return newRouter(p, localAgent(), next) })
	publisher, err := shim.NewPublisher(os.Getenv(ttrpcAddress))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd for events: %w", err)
	}
	go p.watchForgotten(".", end.Shutdown)
	service, err := gvisor.NewShimRedirector(ctx, podEvents{retryingPublisher{publisher, p}, p.serving.Load}, end)
	if err != nil {
		return nil, fmt.Errorf("task service: %w", err)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(p.connected.Handshaker(ttrpc.UnixSocketRequireSameUser())))
	if err != nil {
		return nil, err
	}
	if err := service.(shim.TTRPCService).RegisterTTRPC(server); err != nil {
		return nil, fmt.Errorf("register the task service: %w", err)
	}
	listener, err := net.FileListener(os.NewFile(socketFD, "socket"))
	if err != nil {
		return nil, fmt.Errorf("inherited socket: %w", err)
	}
	over := make(chan error, 1)
	go func() {
		defer listener.Close()
		if err := server.Serve(ctx, listener); err != nil && !errors.Is(err, net.ErrClosed) {
			over <- fmt.Errorf("can no longer serve containerd: %w", err)
		}
	}()
	return over, nil
}

// handleSignals reaps children, and does what other signals ask for, until the process is to end. It returns why, if
// that is a failure to serve.
func handleSignals(signals <-chan os.Signal, failed <-chan error, end shutdown.Service) error {
	for {
		select {
		case <-end.Done():
			return nil
		case err := <-failed:
			return err
		case s := <-signals:
			switch s {
			case unix.SIGCHLD:
				if err := reaper.Reap(); err != nil {
					slog.Error("reap processes that have ended", "error", err)
				}
			case unix.SIGTERM, unix.SIGINT:
				end.Shutdown()
			case unix.SIGUSR1:
				slog.Info("the stacks of all goroutines", "stacks", string(stacks()))
			}
		}
	}
}

// stackLimit bounds what is written of the stacks of all goroutines, in bytes.
const stackLimit = 1 << 20

func stacks() []byte {
	buf := make([]byte, stackLimit)
	return buf[:runtime.Stack(buf, true)]
}

// removeSocket removes the file of the socket that this process has served.
func removeSocket() {
	address, err := shim.ReadAddress("address")
	if err == nil {
		err = shim.RemoveSocket(address)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		slog.Warn("remove the socket", "error", err)
	}
}

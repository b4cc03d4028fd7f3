package idle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
	"diapause.dev/runsc/use"
)

// ErrNever is the kind of error for a pod that cannot sleep, and never will.
var ErrNever = errors.New("the pod cannot sleep")

// Kernel is the Meter of a node. Its counters are files of the kernel. Of a pod of which
// something is ignored, its shim counts the packets.
type Kernel struct {
	Runtime Runtime
	Busy    func(sandbox string) bool // reports whether a sandbox is being loaded or saved
	Used    string                    // the directory of package use
}

// Runtime finds pods, and gives orders to their shims. *cri.Client implements it.
type Runtime interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
	OrderSleep(ctx context.Context, podID string, o sleep.Order) error
}

var errNoSandbox = errors.New("its sandbox does not run")

// Open implements Meter.
func (k Kernel) Open(ctx context.Context, ref snapshot.PodRef, ignored []traffic.Ignored) (Gauge, error) {
	pod, err := k.Runtime.Find(ctx, ref.UID)
	if err != nil {
		return nil, err
	}
	if pod.UID != ref.UID || pod.SandboxPID == 0 {
		return nil, fmt.Errorf("pod %s: %w", ref, errNoSandbox)
	}
	if err := pod.CheckRuntime(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNever, err)
	}
	network := fmt.Sprintf("/proc/%d/net", pod.SandboxPID)
	if err := checkInterface(network); err != nil {
		return nil, err
	}
	cpu, err := cgroup.CPUOf(pod.SandboxPID, 1)
	if err != nil {
		return nil, err
	}
	g := &gauge{
		pid: pod.SandboxPID, cpu: cpu, used: k.Used, sandbox: pod.ID,
		received: func() (uint64, error) { return use.Received(network) },
		answers: func(ctx context.Context, within time.Duration) error {
			o := sleep.Order{Verb: sleep.Answers, Ignored: ignored, AnswerWithin: within}
			return k.Runtime.OrderSleep(ctx, pod.ID, o)
		},
		senders: func(ctx context.Context) ([]traffic.Count, error) {
			err := k.Runtime.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.Senders, Ignored: ignored})
			if err != nil {
				return nil, err
			}
			return use.Senders(k.Used, pod.ID)
		},
		busy: func() bool { return k.Busy(pod.ID) },
	}
	if len(ignored) == 0 {
		return g, nil
	}
	// To tell packets from one another takes rights that shims have, and the agent has not.
	if err := k.Runtime.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.Count, Ignored: ignored}); err != nil {
		return nil, err
	}
	g.received = func() (uint64, error) { return use.Packets(k.Used, pod.ID) }
	return g, nil
}

// gauge reads the counters of one sandbox.
type gauge struct {
	pid      int // of the sentry
	cpu      *cgroup.CPU
	used     string // the directory of the files of shims
	sandbox  string
	received func() (packets uint64, err error)
	answers  func(ctx context.Context, within time.Duration) error
	senders  func(context.Context) ([]traffic.Count, error)
	busy     func() bool
}

// Senders implements Gauge. The agent may not look at packets, so the pod's shim does.
func (g *gauge) Senders(ctx context.Context) ([]traffic.Count, error) { return g.senders(ctx) }

// Owes implements Gauge. It is the sentry that knows, and the pod's shim asks it.
func (g *gauge) Owes(ctx context.Context, within time.Duration) (bool, error) {
	err := g.answers(ctx, within)
	if errors.Is(err, sleep.ErrTraffic) {
		return true, nil
	}
	return false, err
}

// Busy implements Gauge.
func (g *gauge) Busy() bool { return g.busy() }

// Memory implements Gauge.
func (g *gauge) Memory() (int64, error) { return runsc.MemoryUsage(g.pid) }

// Read implements Gauge.
func (g *gauge) Read() (u Usage, err error) {
	if u.CPU, err = g.cpu.Used(); err != nil {
		return u, err
	}
	if u.Session, err = use.Session(g.used, g.sandbox); err != nil {
		return u, err
	}
	u.Received, err = g.received()
	return u, err
}

var errNoInterface = errors.New("the pod has no network interface of its own")

// checkInterface returns an error of kind errNoInterface if a network namespace has only the loopback. Dir is the
// directory of the kernel about it.
func checkInterface(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			return nil
		}
	}
	return errNoInterface
}

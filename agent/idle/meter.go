package idle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/cgroup"
)

// ErrNever is the kind of error for a pod that cannot sleep, and never will.
var ErrNever = errors.New("the pod cannot sleep")

// Kernel is the Meter of a node. Its counters are files of the kernel; no process is asked.
type Kernel struct {
	Runtime Runtime
	Busy    func(sandbox string) bool // reports whether a sandbox is being loaded or saved
	Used    string                    // the directory of the files that shims touch while somebody uses a sandbox
}

// Runtime finds pods. *cri.Client implements it.
type Runtime interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
}

var errNoSandbox = errors.New("its sandbox does not run")

// Open implements Meter.
func (k Kernel) Open(ctx context.Context, ref snapshot.PodRef) (Gauge, error) {
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
	cpu, err := cgroup.CPUOf(pod.SandboxPID, 1)
	if err != nil {
		return nil, err
	}
	return &gauge{
		pid: pod.SandboxPID, network: fmt.Sprintf("/proc/%d/net", pod.SandboxPID), cpu: cpu,
		used: filepath.Join(k.Used, pod.ID), busy: func() bool { return k.Busy(pod.ID) },
	}, nil
}

// gauge reads the counters of one sandbox.
type gauge struct {
	pid     int    // of the sentry
	network string // the directory of the kernel about its network namespace
	cpu     *cgroup.CPU
	used    string // the file that shims touch
	busy    func() bool
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
	if info, err := os.Stat(g.used); err == nil {
		u.Session = info.ModTime()
	} else if !errors.Is(err, os.ErrNotExist) {
		return u, err
	}
	f, err := os.Open(filepath.Join(g.network, "dev"))
	if err != nil {
		return u, err
	}
	defer f.Close()
	u.Received, err = received(bufio.NewScanner(f))
	return u, err
}

var errNoInterface = errors.New("the pod has no network interface of its own")

// received adds up the packets that all interfaces but the loopback have received, from a file such as /proc/net/dev.
func received(lines *bufio.Scanner) (packets uint64, err error) {
	found := false
	for lines.Scan() {
		name, counters, ok := strings.Cut(lines.Text(), ":")
		f := strings.Fields(counters)
		if !ok || strings.TrimSpace(name) == "lo" || len(f) < 2 {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("counters of interface %s: %w", strings.TrimSpace(name), err)
		}
		packets, found = packets+n, true
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if !found {
		return 0, errNoInterface
	}
	return packets, nil
}

// Clean removes the files about sandboxes that containerd no longer knows from the directory of a Kernel. Here are the
// ids of those that it knows.
func Clean(used string, here map[string]bool) error {
	files, err := os.ReadDir(used)
	for _, f := range files {
		if !here[f.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(used, f.Name())))
		}
	}
	return err
}

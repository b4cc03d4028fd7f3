package idle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	network := fmt.Sprintf("/proc/%d/net", pod.SandboxPID)
	if err := checkInterface(network); err != nil {
		return nil, err
	}
	cpu, err := cgroup.CPUOf(pod.SandboxPID, 1)
	if err != nil {
		return nil, err
	}
	return &gauge{
		pid: pod.SandboxPID, network: network, cpu: cpu,
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
	u.Received, err = received(g.network)
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

// received returns how many IP packets have come for a network namespace, from the files snmp and snmp6 in the
// directory of the kernel about it (proc_pid_net(5)). The questions of neighbors for addresses do not count: ARP is not
// IP, and over IPv6 they are multicasts, none of which counts. The kernel counts packets for its own network stack,
// though gVisor has taken the addresses.
func received(dir string) (packets uint64, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "snmp"))
	if err != nil {
		return 0, err
	}
	if packets, err = receivedIPv4(string(text)); err != nil {
		return 0, err
	}
	text, err = os.ReadFile(filepath.Join(dir, "snmp6"))
	if errors.Is(err, os.ErrNotExist) { // the kernel has no IPv6
		return packets, nil
	}
	if err != nil {
		return 0, err
	}
	six, err := receivedIPv6(string(text))
	return packets + six, err
}

// receivedIPv4 returns the counter InReceives. A line names the counters, and the next one has them.
func receivedIPv4(snmp string) (uint64, error) {
	var names []string
	for line := range strings.Lines(snmp) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		if i := slices.Index(names, "InReceives"); i > 0 && i < len(f) {
			return counter("InReceives", f[i])
		}
	}
	return 0, errors.New("the kernel counts no packets of IP")
}

// receivedIPv6 returns how many packets came that were no multicasts. There is a line for each counter.
func receivedIPv6(snmp6 string) (uint64, error) {
	var all, multicasts uint64
	for line := range strings.Lines(snmp6) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		var err error
		switch f[0] {
		case "Ip6InReceives":
			all, err = counter(f[0], f[1])
		case "Ip6InMcastPkts":
			multicasts, err = counter(f[0], f[1])
		}
		if err != nil {
			return 0, err
		}
	}
	return all - min(all, multicasts), nil // they are not read at the same instant
}

func counter(name, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("counter %s: %w", name, err)
	}
	return n, nil
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

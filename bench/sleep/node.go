package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"diapause.dev/test/bed"
)

// held is what holds memory on the node, in bytes. What processes share counts for each of them with its part (PSS).
type held struct {
	available  float64 // that the machine has left, whatever else it does
	shims      process // all of them together
	containerd process
	agent      process
	pods       float64 // charged to the cgroups of the pods
	disk       float64 // of the spool and the store
}

// process is what one process or several hold.
type process struct {
	count            int
	rss, pss, unique float64 // unique is what they share with nobody
}

func (p *process) add(q procfs.Proc) error {
	r, err := q.ProcSMapsRollup()
	if err != nil {
		return fmt.Errorf("memory of process %d: %w", q.PID, err)
	}
	p.count++
	p.rss += float64(r.Rss)
	p.pss += float64(r.Pss)
	p.unique += float64(r.PrivateClean + r.PrivateDirty)
	return nil
}

// stateDir is where the agent has its spool and its store.
const stateDir = "/var/lib/diapause"

// memory looks at what holds memory now.
func (m *meter) memory() (h held, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return h, err
	}
	info, err := proc.Meminfo()
	if err != nil {
		return h, err
	}
	h.available = float64(*info.MemAvailableBytes)
	if h.pods, err = m.podsMemory(); err != nil {
		return h, err
	}
	if h.disk, err = sizeOf(stateDir); err != nil {
		return h, err
	}
	shims, err := bed.Shims("")
	if err != nil {
		return h, err
	}
	for _, x := range []struct {
		into *process
		pids []int
	}{{&h.shims, shims}, {&h.containerd, []int{m.bed.Containerd.PID()}}, {&h.agent, []int{m.daemon.PID()}}} {
		for _, pid := range x.pids {
			p, err := proc.Proc(pid)
			if err == nil {
				err = x.into.add(p)
			}
			if err != nil {
				return h, err
			}
		}
	}
	return h, nil
}

// podsMemory returns what is charged to all pods.
func (m *meter) podsMemory() (bytes float64, err error) {
	pods, err := m.bed.Pods(context.Background())
	if err != nil {
		return 0, err
	}
	for _, p := range pods {
		held, err := m.charged(p)
		if err != nil {
			return 0, err
		}
		bytes += float64(held)
	}
	return bytes, nil
}

// charged returns what is charged to a pod. One that sleeps has no cgroup, unless a kubelet has made it.
func (m *meter) charged(p *bed.Pod) (bytes int64, err error) {
	now, err := m.bed.PodMemory(p)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return now.Held(), err
}

// blockSize is the unit in which the kernel counts what a file takes, in bytes.
const blockSize = 512

// sizeOf returns how much the files of a directory take on their disk. A file with two names counts once.
func sizeOf(dir string) (bytes float64, err error) {
	seen := make(map[uint64]bool)
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if s := info.Sys().(*syscall.Stat_t); !seen[s.Ino] {
			seen[s.Ino] = true
			bytes += float64(s.Blocks) * blockSize
		}
		return nil
	})
	return bytes, err
}

// addMemory adds what each of n pods that sleep takes.
func (m *meter) addMemory(scenario string, n int, empty, full held) {
	each := func(metric string, before, after float64) figure {
		f := inMiB(metric, (after-before)/float64(n))
		f.Unit = "MiB/pod"
		return f
	}
	shims := each("shims", empty.shims.pss, full.shims.pss)
	pods := each("cgroups", empty.pods, full.pods)
	agent := each("agent", empty.agent.pss, full.agent.pss)
	containerd := each("containerd", empty.containerd.pss, full.containerd.pss)
	all := figure{
		Metric: "memory", Value: round(shims.Value + pods.Value + agent.Value + containerd.Value), Unit: shims.Unit,
	}
	m.figures.add(scenario, count("pods", n), count("shim_processes", full.shims.count), all, shims, pods, agent,
		containerd, each("shims_rss", empty.shims.rss, full.shims.rss),
		each("shims_unique", empty.shims.unique, full.shims.unique),
		each("available_less", -empty.available, -full.available), each("disk", empty.disk, full.disk))
	say("%s: %d pods sleep, %.1f MiB a pod", scenario, n, all.Value)
}

// idle measures the processor time that is used while all pods sleep: as containerd is set by default, and when it asks
// for statistics less often.
func (m *meter) idle(ctx context.Context) error {
	if err := m.idleAs(ctx, "idle"); err != nil {
		return err
	}
	if err := m.askRarely(ctx); err != nil {
		return err
	}
	return m.idleAs(ctx, "idle/stats-"+statsPeriod)
}

// statsConfig is a file that containerd's configuration includes.
const statsConfig = "/etc/containerd/conf.d/stats.toml"

// statsPeriod is how often containerd then asks for statistics.
const statsPeriod = "10s"

// askRarely has containerd ask for statistics less often, and starts it again. The pods sleep on.
func (m *meter) askRarely(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(statsConfig), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  stats_collect_period = %q\n", statsPeriod)
	if err := os.WriteFile(statsConfig, []byte(text), 0o644); err != nil {
		return err
	}
	if err := m.bed.Containerd.Restart(ctx); err != nil {
		return err
	}
	time.Sleep(crowdRest)
	return os.Remove(statsConfig)
}

// idleAs measures that once.
func (m *meter) idleAs(ctx context.Context, scenario string) error {
	before, err := m.used()
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(m.idleTime):
	}
	after, err := m.used()
	if err != nil {
		return err
	}
	took := time.Since(began)
	share := func(metric string, before, after time.Duration) figure {
		return figure{Metric: metric, Value: round(100 * float64(after-before) / float64(took)), Unit: "% of a core"}
	}
	all := share("agent_and_shims", before.agent+before.shims, after.agent+after.shims)
	m.figures.add(scenario, count("pods", m.pods), figure{Metric: "time", Value: round(took.Seconds()), Unit: "s"}, all,
		share("agent", before.agent, after.agent), share("shims", before.shims, after.shims),
		share("containerd", before.containerd, after.containerd))
	say("%s: %d pods: agent and shims %g %s", scenario, m.pods, all.Value, all.Unit)
	return nil
}

// used is the processor time that was used so far.
type used struct{ agent, shims, containerd time.Duration }

func (m *meter) used() (u used, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	if u.agent, err = processorTime(proc, m.daemon.PID()); err != nil {
		return u, err
	}
	if u.containerd, err = processorTime(proc, m.bed.Containerd.PID()); err != nil {
		return u, err
	}
	shims, err := bed.Shims("")
	if err != nil {
		return u, err
	}
	for _, pid := range shims {
		one, err := processorTime(proc, pid)
		if err != nil {
			return u, err
		}
		u.shims += one
	}
	return u, nil
}

// processorTime returns the processor time of all threads of a process, to the nanosecond: hundreds of processes that
// use little each would be lost in the hundredths of a second of /proc/PID/stat.
func processorTime(proc procfs.FS, pid int) (d time.Duration, err error) {
	threads, err := proc.AllThreads(pid)
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		s, err := t.Schedstat()
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		d += time.Duration(s.RunningNanoseconds)
	}
	return d, nil
}

// machineLoad returns the load average of the machine over the last minute, which tells whether it was quiet.
func machineLoad() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return -1
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return -1
	}
	return load.Load1
}

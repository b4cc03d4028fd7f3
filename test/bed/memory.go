package bed

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what is charged to a cgroup and to those below it, in bytes.
type Memory struct {
	Usage int64 // everything
	Cache int64 // the part of Usage that is page cache of files on disks, which the kernel takes back when it needs it
	Limit int64 // of Usage; math.MaxInt64, or about that, if there is none
}

// Held returns what the kernel cannot take back: Usage without Cache.
func (m Memory) Held() int64 { return m.Usage - m.Cache }

// PodMemory returns what is charged to a pod.
func (b *Bed) PodMemory(p *Pod) (Memory, error) { return memoryOf(podCgroup(b.CgroupParent, p.UID)) }

// PodsMemory returns what is charged to all pods below CgroupParent.
func (b *Bed) PodsMemory() (Memory, error) { return memoryOf(b.CgroupParent) }

// LimitPods sets the memory limit of all pods below CgroupParent together, in bytes, as a kubelet does.
func (b *Bed) LimitPods(limit int64) error { return limitMemory(b.CgroupParent, limit) }

// bestEffort is the cgroup of a node's pods that ask for no resources, as its kubelet makes it.
func (n *Node) bestEffort() string { return n.CgroupParent + "/kubepods/besteffort" }

// BestEffortMemory returns what is charged to the node's pods that ask for no resources.
func (n *Node) BestEffortMemory() (Memory, error) { return memoryOf(n.bestEffort()) }

// LimitBestEffort sets the memory limit of the node's pods that ask for no resources, all together, in bytes;
// math.MaxInt64: none.
func (n *Node) LimitBestEffort(limit int64) error { return limitMemory(n.bestEffort(), limit) }

// Files with the limit of a cgroup's memory.
const (
	limitV1 = "memory.limit_in_bytes"
	limitV2 = "memory.max"
)

func podCgroup(parent, uid string) string { return parent + "/pod" + uid }

// AgentMemory returns what is charged to the agents that ran in the bed.
func (b *Bed) AgentMemory() (Memory, error) { return memoryOf(b.CgroupParent + agentCgroup) }

// agentCgroup is where agents are, below the bed's cgroup or a node's.
const agentCgroup = "/agent"

// memoryTop returns where the hierarchy with memory is mounted, and whether it is of cgroup v2.
func memoryTop() (top string, unified bool) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return cgroupRoot, true
	}
	return filepath.Join(cgroupRoot, "memory"), false
}

func memoryOf(path string) (m Memory, err error) {
	top, unified := memoryTop()
	usage, limit, cache, shared := "memory.usage_in_bytes", limitV1, "total_cache", "total_shmem"
	if unified {
		usage, limit, cache, shared = "memory.current", limitV2, "file", "shmem"
	}
	if m.Usage, err = bytesIn(filepath.Join(top, path, usage)); err == nil {
		m.Limit, err = bytesIn(filepath.Join(top, path, limit))
	}
	if err != nil {
		return m, fmt.Errorf("bed: memory of cgroup %s: %w", path, err)
	}
	stat, err := memoryStat(filepath.Join(top, path, "memory.stat"))
	m.Cache = stat[cache] - stat[shared]
	return m, err
}

// bytesIn reads a file of the kernel that holds a number of bytes, or "max".
func bytesIn(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if string(text) == "max\n" {
		return math.MaxInt64, nil
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func memoryStat(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	defer f.Close()
	stat := make(map[string]int64)
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		if stat[name], err = strconv.ParseInt(value, 10, 64); err != nil {
			return nil, fmt.Errorf("bed: %s: %w", path, err)
		}
	}
	return stat, nil
}

// limitMemory makes a cgroup with a memory limit, unless that is 0.
func limitMemory(path string, limit int64) error {
	if limit == 0 {
		return nil
	}
	if err := makeCgroup(path[1:]); err != nil {
		return fmt.Errorf("bed: %w", err)
	}
	top, unified := memoryTop()
	name := limitV1
	if unified {
		name = limitV2
	}
	if err := os.WriteFile(filepath.Join(top, path, name), fmt.Append(nil, limit), 0); err != nil {
		return fmt.Errorf("bed: limit memory: %w", err)
	}
	return nil
}

// enterCgroup moves a process into the cgroup of that path, which is made if there is none: its memory is
// charged there from then on.
func enterCgroup(path string, pid int) error {
	if err := makeCgroup(path[1:]); err != nil {
		return fmt.Errorf("bed: %w", err)
	}
	top, _ := memoryTop()
	if err := os.WriteFile(filepath.Join(top, path, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
		return fmt.Errorf("bed: move process %d: %w", pid, err)
	}
	return nil
}

// PodProcesses returns how many processes are in the cgroups of a pod: none while it sleeps.
func (b *Bed) PodProcesses(p *Pod) (n int, err error) {
	top, _ := memoryTop()
	dir := filepath.Join(top, podCgroup(b.CgroupParent, p.UID))
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		pids, err := os.ReadFile(path)
		n += strings.Count(string(pids), "\n")
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // runsc removes the cgroups that it has made
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("bed: processes of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return n, nil
}

package kubelet

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// name is what the kernel calls the kubelet's process, unless the kubelet is a part of another program.
const name = "kubelet"

// port is where a kubelet serves its API, unless it was told otherwise.
const port = 10250

// Finder finds the kubelet of this node. It remembers the process, and looks at it first: a readiness probe asks every
// few seconds. Its methods may be called concurrently. The zero value remembers none.
type Finder struct{ last atomic.Pointer[process] }

// process is one process of all times.
type process struct{ pid, started string }

// Running reports whether a kubelet runs on this node, and its process id. It finds only processes that the
// caller's /proc shows. A kubelet removes pods that it did not make.
//
// The kubelet is a process of the node itself, not of a pod: it is called kubelet, or listens at the kubelet's port,
// as k3s and MicroK8s do, in which it is a part of a larger program.
func (f *Finder) Running() (pid int, ok bool, err error) {
	p := procfs{dir: "/proc", port: port}
	if known := f.last.Load(); known != nil && p.started(known.pid) == known.started {
		pid, err = strconv.Atoi(known.pid)
		return pid, err == nil, err
	}
	found, err := p.kubelet()
	if err != nil || found == "" {
		return 0, false, err
	}
	if started := p.started(found); started != "" {
		f.last.Store(&process{pid: found, started: started})
	}
	pid, err = strconv.Atoi(found)
	return pid, err == nil, err
}

// procfs is a proc file system. Process ids are the names of its directories.
type procfs struct {
	dir  string
	port uint16 // where the kubelet listens
}

// kubelet returns the process of the node's kubelet; empty: there is none.
func (p procfs) kubelet() (pid string, err error) {
	all, err := p.processes()
	if err != nil {
		return "", err
	}
	for _, pid := range all {
		if p.name(pid) == name && p.isNodes(pid) {
			return pid, nil
		}
	}
	sockets := p.listeners()
	if len(sockets) == 0 {
		return "", nil
	}
	for _, pid := range all {
		if p.isNodes(pid) && p.holds(pid, sockets) {
			return pid, nil
		}
	}
	return "", nil
}

func (p procfs) processes() (pids []string, err error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("look for the kubelet: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	return pids, nil
}

// read returns a file of a process. If there is no such file, or process, it is empty.
func (p procfs) read(pid, file string) []byte {
	data, err := os.ReadFile(filepath.Join(p.dir, pid, file))
	if err != nil {
		return nil
	}
	return data
}

// name returns what the kernel calls a process.
func (p procfs) name(pid string) string { return string(bytes.TrimSpace(p.read(pid, "comm"))) }

// started returns when a process was started, in ticks since the node was; empty: there is no such process.
func (p procfs) started(pid string) string {
	stat := p.read(pid, "stat")
	// The second field is the name, which may have any characters in it; the one after it is the third.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const startTime = 22
	if len(fields) <= startTime-3 {
		return ""
	}
	return fields[startTime-3]
}

// first is the node's first process.
const first = "1"

// isNodes reports whether a process is the node's own. Pods cannot forge that: it is in the network namespace of the
// node's first process, and in no pod's cgroup.
func (p procfs) isNodes(pid string) bool {
	own, ok := p.network(first)
	if ns, known := p.network(pid); !ok || !known || ns != own {
		return false
	}
	node := p.read(first, "cgroup") // the node itself may be a container in a pod
	for _, pod := range podCgroup.FindAll(p.read(pid, "cgroup"), -1) {
		if !bytes.Contains(node, pod) {
			return false
		}
	}
	return true
}

// podCgroup is the part of a cgroup's name that has the UID of a pod. Systemd has underscores for dashes, and the UID
// of a static pod has none.
var podCgroup = regexp.MustCompile(`pod[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12}`)

// network returns a number of the network namespace of a process: that of a file which the kernel makes for each
// namespace. The link in the directory ns says it, too, but only to those who may trace the process.
func (p procfs) network(pid string) (number uint64, ok bool) {
	fi, err := os.Stat(filepath.Join(p.dir, pid, "net", "tcp"))
	if err != nil {
		return 0, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Ino, true
}

// listeners returns the sockets that listen at the kubelet's port, as the links to descriptors name them.
func (p procfs) listeners() map[string]bool {
	sockets := make(map[string]bool)
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(p.dir, first, "net", file))
		if err != nil {
			continue // without IPv6 there is none
		}
		listenersAt(p.port, f, sockets)
		f.Close()
	}
	return sockets
}

// listenersAt reads a table of sockets (proc_pid_net(5)). Those that listen come first. It reads no further: there may
// be very many others.
func listenersAt(port uint16, table *os.File, sockets map[string]bool) {
	const local, state, inode, listens = 1, 3, 9, "0A"
	suffix := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(table)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listens {
			return
		}
		if strings.HasSuffix(fields[local], suffix) {
			sockets["socket:["+fields[inode]+"]"] = true
		}
	}
}

// holds reports whether a process has one of the sockets open.
func (p procfs) holds(pid string, sockets map[string]bool) bool {
	dir := filepath.Join(p.dir, pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended, or may not be looked into
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && sockets[target] {
			return true
		}
	}
	return false
}

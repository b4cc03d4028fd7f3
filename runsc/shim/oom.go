package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/containerd/api/events"
	containerd "github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/shim"
	runc "github.com/containerd/go-runc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// For each container that it creates, gVisor's shim watches the sandbox's cgroup for the OOM killer until that cgroup
// is gone. With cgroup v2 each watch takes a thread and an inotify instance, of which root has 128 on a node. A
// container that crashes again and again would use them up, for one process serves its pod all the time.
//
// So gVisor's shim learns the process of the sandbox container alone: without a process it begins no watch. What the
// watch of the sandbox finds is published for each container of the pod, and each answer gets the process back.

// unwatched runs the commands of runsc. It hides from gVisor's shim the processes of containers that are created in the
// pod's sandbox.
type unwatched struct {
	runsccmd.ProcessMonitor
	pod *router
}

// pidFile is the flag that tells runsc create where to write the process id.
const pidFile = "--pid-file"

// Wait implements runsccmd.ProcessMonitor.
func (u unwatched) Wait(cmd *exec.Cmd, exit chan runc.Exit) (int, error) {
	status, err := u.ProcessMonitor.Wait(cmd, exit)
	if err != nil || status != 0 || !slices.Contains(cmd.Args, "create") || !u.pod.isMember(cmd.Args[len(cmd.Args)-1]) {
		return status, err
	}
	i := slices.Index(cmd.Args, pidFile)
	if i < 0 || i+1 >= len(cmd.Args) {
		return status, fmt.Errorf("%s is not in %q", pidFile, cmd.Args)
	}
	return status, os.WriteFile(cmd.Args[i+1], []byte("0"), 0o644)
}

// podEvents publishes the events of a pod's containers, with what gVisor's shim does not know.
type podEvents struct {
	shim.Publisher
	pod func() *router // nil: no container was created
}

// Publish implements events.Publisher.
func (p podEvents) Publish(ctx context.Context, topic string, event containerd.Event) error {
	var errs []error
	if t := p.pod(); t != nil {
		for _, id := range t.complete(event) {
			errs = append(errs, p.Publisher.Publish(ctx, runtime.TaskOOMEventTopic, &events.TaskOOM{ContainerID: id}))
		}
	}
	return errors.Join(append(errs, p.Publisher.Publish(ctx, topic, event))...)
}

// complete sets the process in an event. It returns the containers that the OOM killer has hit if that is to be
// published first: the kubelet looks for it when the container has ended.
func (t *router) complete(event containerd.Event) (killed []string) {
	switch e := event.(type) {
	case *events.TaskStart:
		e.Pid = t.pidOf(e.ContainerID, e.Pid)
	case *events.TaskExit:
		if e.ID != e.ContainerID || !t.isMember(e.ID) {
			return nil
		}
		e.Pid = t.pidOf(e.ContainerID, e.Pid)
		if t.kills.take(e.ID) {
			return []string{e.ID}
		}
	case *events.TaskOOM:
		if t.isMember(e.ContainerID) {
			return nil
		}
		for _, id := range t.members() {
			if !t.kills.counts() || t.kills.take(id) {
				killed = append(killed, id)
			}
		}
	}
	return killed
}

// oomKills knows of which kills in the sandbox's cgroup containerd was told. The zero value knows of no cgroup. Its
// methods may be called concurrently.
type oomKills struct {
	mu   sync.Mutex
	file string            // with the kernel's count; empty: there is none, as with cgroup v1
	told map[string]uint64 // by container id: the count of which containerd was told
}

// countIn has the kills in the cgroup of the sandbox's process counted.
func (k *oomKills) countIn(pid int) {
	if cgroups.Mode() != cgroups.Unified {
		return
	}
	group, err := cgroup2.PidGroupPath(pid)
	if err != nil {
		slog.Warn("containerd may not be told what the OOM killer ends: find the sandbox's cgroup", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.file = filepath.Join("/sys/fs/cgroup", group, "memory.events")
}

// counts reports whether kills are counted.
func (k *oomKills) counts() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file != ""
}

// begin begins with a container that is about to be created. Kills before are not its own.
func (k *oomKills) begin(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told == nil {
		k.told = make(map[string]uint64)
	}
	k.told[id] = killsIn(k.file)
}

// take reports whether there were kills since the container's creation of which containerd was not told. It takes them
// for told.
func (k *oomKills) take(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	told, known := k.told[id]
	n := killsIn(k.file)
	if !known || n == told {
		return false
	}
	k.told[id] = n
	return n > 0 // a cgroup that was made anew counts from 0
}

// forget forgets a container that is deleted.
func (k *oomKills) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.told, id)
}

// killsIn returns the count of a file memory.events, or 0 if it cannot be read: the cgroup is gone.
func killsIn(file string) (n uint64) {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			_, _ = fmt.Sscan(count, &n)
		}
	}
	return n
}

package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A shim cannot see who asks containerd to exec: the kubelet for a probe or a hook, or somebody by kubectl. But the
// agent says what the kubelet runs. A process is taken for the kubelet's if it runs exactly that, without a terminal or
// an input. It is answered with success, and nothing is run, in four cases:
//
//   - The pod sleeps: a liveness or readiness probe does not wake it. Nor does a preStop hook, unless the pod is to be
//     woken to end. If the pod could not be woken, a readiness probe is answered with failure.
//   - The agent wants the pod to sleep: a liveness or readiness probe does not keep it awake.
//   - The sandbox waits for its other containers. The kubelet creates the next one only after the startup probe or the
//     postStart hook of the one before has succeeded, and gVisor loads only when all are there.
//   - A container is restored: its postStart hook has run in the life that the snapshot is of.

// probesFile is a file in the bundle of a sandbox container: what the kubelet runs in the pod's containers by exec.
const probesFile = "diapause-probes"

// execCommand is what the kubelet runs.
type execCommand struct {
	Kind      localv1.ExecProbe_Kind `json:"kind,omitempty"`
	Args      []string               `json:"args"`
	Readiness bool                   `json:"readiness,omitempty"` // a readiness probe, and no liveness probe
}

// noteProbes keeps what the agent says that the kubelet runs.
func (b bundle) noteProbes(probes []*localv1.ExecProbe) error {
	if len(probes) == 0 {
		return nil
	}
	all := make(map[string][]execCommand) // by container name
	for _, p := range probes {
		all[p.GetContainer()] = append(all[p.GetContainer()], execCommand{p.GetKind(), p.GetCommand(), p.GetReadiness()})
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, probesFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the probes of sandbox %s: %w", b.id, err)
	}
	return nil
}

// kinds are what a process of the kubelet may be: one command may serve for several.
type kinds struct{ probe, readiness, startup, postStart, preStop bool }

// kindsOf returns what of the kubelet's a process in a container with that name may be.
func (b bundle) kindsOf(container string, r *task.ExecProcessRequest) (k kinds) {
	if r.Terminal || r.Stdin != "" || container == "" {
		return k
	}
	data, err := os.ReadFile(filepath.Join(b.dir, probesFile))
	if err != nil {
		return k
	}
	var (
		all     map[string][]execCommand
		process specs.Process
	)
	if json.Unmarshal(data, &all) != nil || json.Unmarshal(r.Spec.GetValue(), &process) != nil {
		return k
	}
	for _, c := range all[container] {
		if slices.Equal(c.Args, process.Args) {
			k.probe = k.probe || c.Kind == localv1.ExecProbe_PROBE
			k.readiness = k.readiness || c.Readiness
			k.startup = k.startup || c.Kind == localv1.ExecProbe_STARTUP
			k.postStart = k.postStart || c.Kind == localv1.ExecProbe_POST_START
			k.preStop = k.preStop || c.Kind == localv1.ExecProbe_PRE_STOP
		}
	}
	return k
}

const (
	// probeLimit is how long a pod that is to sleep stays awake for probes that run.
	probeLimit = 10 * time.Second
	// enteringLimit is how long probes are answered for a pod that is to sleep and is not paused. Then the agent may
	// have died.
	enteringLimit = 30 * time.Second
	// probePoll is how often a pod is looked at in which probes run.
	probePoll = 10 * time.Millisecond
)

// probing is that the agent wants the pod to sleep. Its methods may be called concurrently. The zero value says that
// it does not.
type probing struct{ since atomic.Pointer[time.Time] }

// begin has the probes by exec answered from now on, and waits until those have ended that run, for at most probeLimit.
// If they are slow, and were run as before, one might run at any time, and the pod would never sleep.
func (f *probing) begin(ctx context.Context, run func() bool) {
	began := time.Now()
	f.since.Store(&began)
	for run() && time.Since(began) < probeLimit {
		select {
		case <-time.After(probePoll):
		case <-ctx.Done():
			return
		}
	}
}

// end has the probes run again. The pod sleeps, or stays awake.
func (f *probing) end() { f.since.Store(nil) }

// answers reports whether the probes of a pod that is not asleep are answered.
func (f *probing) answers(s *sandbox) bool {
	since := f.since.Load()
	return since != nil && (time.Since(*since) < enteringLimit || s.lease.Held())
}

// onlyProbes reports whether probes run in containers, and nothing else that was started by exec.
func onlyProbes(mu *sync.Mutex, all []*resident) (some bool) {
	mu.Lock()
	defer mu.Unlock()
	for _, x := range all {
		for _, p := range x.execs {
			if !p.probe {
				return false
			}
			some = true
		}
	}
	return some
}

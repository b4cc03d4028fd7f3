package cri

import (
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// RuntimeType is the containerd runtime whose shim can checkpoint and restore.
const RuntimeType = "io.containerd.diapause.v1"

// Kinds of errors.
var (
	// ErrNotFound means that there is no such pod.
	ErrNotFound = errdefs.ErrNotFound
	// ErrAmbiguous means that a target matches more than one pod. The error names them.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrOtherRuntime means that the pod's runtime cannot checkpoint.
	ErrOtherRuntime = errors.New("runs under another runtime")
	// ErrNotRunning means that the pod's sandbox or all of its containers have ended.
	ErrNotRunning = errors.New("not running")
)

// State is the state of a container.
type State string

// States of a container.
const (
	StateCreated State = "created"
	StateRunning State = "running"
	StateExited  State = "exited"
	StateUnknown State = "unknown"
)

// Pod is one pod of this node, as containerd reported it at one time.
type Pod struct {
	ID        string // of its sandbox container
	Name      string
	Namespace string
	UID       string
	Handler   string // runtime handler; empty: containerd's default
	Runtime   string // runtime type, e.g. RuntimeType; empty: no longer known
	Labels    map[string]string
	// Annotations of the pod, including those that the runtime does not get.
	Annotations map[string]string
	Ready       bool // its sandbox runs
	Created     time.Time
	IP          string // empty: host network, or it has no address any more
	// SandboxPID is the process of the sandbox in the agent's PID namespace. It is 0 if the sandbox does not run. From
	// Pods it is also 0 if the shim does not answer at once.
	SandboxPID int
	Containers []Container // in order of creation, including ended ones
}

// Container is one container of a pod, other than the sandbox container.
type Container struct {
	ID       string
	Name     string
	Image    string
	State    State
	ExitCode int32 // of an exited container
	Created  time.Time
}

// String returns "namespace/name".
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// CheckRuntime returns nil if the pod runs under RuntimeType. Otherwise it returns an error of kind ErrOtherRuntime
// that says what to do.
func (p *Pod) CheckRuntime() error {
	if p.Runtime == RuntimeType {
		return nil
	}
	runtime := p.Runtime
	if runtime == "" {
		runtime = "unknown"
	}
	return fmt.Errorf("pod %s: %w: %q (handler %q), and only %q can checkpoint: run the pod with the runtime handler "+
		"(RuntimeClass) of that type",
		p, ErrOtherRuntime, runtime, p.Handler, RuntimeType)
}

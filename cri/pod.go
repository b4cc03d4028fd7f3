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
	// ErrNotFound: no such pod.
	ErrNotFound = errdefs.ErrNotFound
	// ErrAmbiguous: a target means more than one pod; the error names them.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrOtherRuntime: the pod runs under a runtime that cannot checkpoint.
	ErrOtherRuntime = errors.New("runs under another runtime")
	// ErrNotRunning: the pod's sandbox or all of its containers have ended.
	ErrNotRunning = errors.New("not running")
)

// State says whether a container runs.
type State string

// States of a container.
const (
	StateCreated State = "created"
	StateRunning State = "running"
	StateExited  State = "exited"
	StateUnknown State = "unknown"
)

// Pod is one pod of this node as containerd knew it when it was asked.
type Pod struct {
	ID        string // of its sandbox container
	Name      string
	Namespace string
	UID       string
	Handler   string // runtime handler; empty: containerd's default
	Runtime   string // runtime type, e.g. RuntimeType; empty: no longer known
	Labels    map[string]string
	// Annotations of the pod, those that the runtime does not get included.
	Annotations map[string]string
	Ready       bool // its sandbox runs
	Created     time.Time
	IP          string // empty: host network, or none any more
	// SandboxPID is the process of the sandbox in the agent's PID namespace; 0: it does not run, or (from
	// Pods) its shim does not tell at once.
	SandboxPID int
	Containers []Container // in order of creation, ended ones included
}

// Container is one container of a pod; the sandbox container is not among them.
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

// CheckRuntime returns an error of kind ErrOtherRuntime, which says what to do, unless the pod
// runs under RuntimeType.
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

// Package snapshot holds what a manifest says of a snapshot besides its bytes: who it is, where
// it came from, what a node must offer to restore it, and how its checkpoint went. It is shared by
// the store, which keeps it, and by the agent, which writes and reads it; it knows neither gVisor
// nor Kubernetes beyond their names.
package snapshot

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Key names a snapshot: no two snapshots of a store have the same key.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// names follows Kubernetes' DNS subdomain names (RFC 1123), of at most 253 bytes: all that is
// allowed in them is safe in a path and in an object's name.
var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// ValidName reports whether s can be a namespace or the name of a snapshot.
func ValidName(s string) bool { return len(s) <= 253 && names.MatchString(s) }

// Validate returns an error that says what is wrong with the key, or nil.
func (k Key) Validate() error {
	for _, s := range []struct{ what, value string }{{"namespace", k.Namespace}, {"snapshot name", k.Name}} {
		if !ValidName(s.value) {
			return fmt.Errorf("%s %.80q: want at most 253 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit",
				s.what, s.value)
		}
	}
	return nil
}

// PodRef names a pod as the annotations of its sandbox do.
type PodRef struct{ Namespace, Name, UID string }

// String returns "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Meta is everything a manifest says besides its chunk table.
type Meta struct {
	Key
	UID      string    `json:"uid"`
	Created  time.Time `json:"created"`
	Scope    Scope     `json:"scope,omitempty"`
	Origin   Origin    `json:"origin"`
	Facts    Facts     `json:"facts"`
	Parent   *Key      `json:"parent,omitempty"` // lineage; nil: none
	Pod      Pod       `json:"pod"`
	Timeline []Stage   `json:"timeline,omitempty"`
	// Memory is how many bytes of pages a restore allocates in memory, those in files on a disk aside; 0: not known.
	Memory int64 `json:"memory,omitempty"`
	// Overflow is how many bytes were captured past the arena, in the spool file.
	Overflow int64 `json:"overflow,omitempty"`
}

// Origin is the pod that was checkpointed.
type Origin struct {
	Pod            string            `json:"pod"`
	PodUID         string            `json:"podUID,omitempty"`
	SandboxID      string            `json:"sandboxID"`
	Node           string            `json:"node"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Group          map[string]string `json:"group,omitempty"`
	SpecHash       string            `json:"specHash,omitempty"`
	Cluster        string            `json:"cluster,omitempty"` // its identity; empty: none asked for the snapshot
}

// Facts decide on which node a snapshot can be restored.
type Facts struct {
	Architecture string   `json:"architecture"`
	RunscVersion string   `json:"runscVersion"`
	RunscDigest  string   `json:"runscDigest"` // sha256 of the binary, hex
	CPUFeatures  []string `json:"cpuFeatures"` // sorted
	Platform     string   `json:"platform"`
	Network      string   `json:"network"`
	PageSize     int64    `json:"pageSize"` // bytes
}

// Pod is the recorded configuration from which a new pod is made without Kubernetes.
type Pod struct {
	RuntimeHandler string          `json:"runtimeHandler,omitempty"`
	Sandbox        json.RawMessage `json:"sandbox,omitempty"` // runtime.v1.PodSandboxConfig
	Containers     []Container     `json:"containers,omitempty"`
	// Ended are containers that had ended and were not running again, in order of creation.
	Ended []EndedContainer `json:"ended,omitempty"`
}

// EndedContainer is a container that had ended when the snapshot was made.
type EndedContainer struct {
	Container
	ExitCode int32 `json:"exitCode"`
}

// Container is the recorded configuration of one container, in order of creation.
type Container struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"` // runtime.v1.ContainerConfig
	// Terminal is how the container's terminal is set; nil: it has none, or that is not known.
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Stage is one step of a checkpoint. The stages of a timeline follow each other without a gap, so
// that they add up to the whole.
type Stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"` // nanoseconds
}

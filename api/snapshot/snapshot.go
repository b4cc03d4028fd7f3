// Package snapshot contains what a manifest says about a snapshot, besides its bytes: its identity, its origin, what
// a node must offer to restore it, and how its checkpoint went. The store keeps this, and the agent writes and reads
// it. Of gVisor and Kubernetes the package knows only names.
package snapshot

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Key names a snapshot: no two snapshots of a store have the same key.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// names follows Kubernetes' DNS subdomain names (RFC 1123), of at most 253 bytes. Every name that matches is safe in
// a path and in an object's name.
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

// encryptedUID begins the UIDs of encrypted snapshots.
const encryptedUID = "encrypted-"

// MakeUID returns a snapshot's UID. It says whether the snapshot is encrypted: who knows the UID of an encrypted
// snapshot takes nothing else for it, whatever a store offers.
func MakeUID(random string, encrypted bool) string {
	if encrypted {
		return encryptedUID + random
	}
	return random
}

// MustBeEncrypted reports whether the snapshot with this UID is encrypted. Earlier agents made UIDs that do not say so.
func MustBeEncrypted(uid string) bool { return strings.HasPrefix(uid, encryptedUID) }

// String returns "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Meta is everything in a manifest except its chunk table.
type Meta struct {
	Key
	UID     string    `json:"uid"`
	Created time.Time `json:"created"`
	Scope   Scope     `json:"scope,omitempty"`
	Purpose Purpose   `json:"purpose,omitempty"`
	// Inheritable: if the pod is deleted while it sleeps, its successors may be restored from this snapshot of its sleep.
	Inheritable bool    `json:"inheritable,omitempty"`
	Origin      Origin  `json:"origin"`
	Facts       Facts   `json:"facts"`
	Parent      *Key    `json:"parent,omitempty"` // lineage; nil: none
	Pod         Pod     `json:"pod"`
	Timeline    []Stage `json:"timeline,omitempty"`
	// Memory is how many bytes of memory a restore allocates for pages. Pages in files on a disk do not count. 0: not
	// known.
	Memory int64 `json:"memory,omitempty"`
	// NamespaceKey is the id of the namespace's key under which the snapshot's data key was made. Empty: it is not
	// encrypted, or an earlier agent made its data key.
	NamespaceKey string `json:"namespaceKey,omitempty"`
	// Overflow is how many captured bytes did not fit the arena, and went to a file.
	Overflow int64 `json:"overflow,omitempty"`
	// Volumes are those outside the snapshot. Earlier agents did not note them.
	Volumes []Volume `json:"volumes,omitempty"`
}

// Origin is the pod that was checkpointed.
type Origin struct {
	Pod            string            `json:"pod"`
	PodUID         string            `json:"podUID,omitempty"`
	NamespaceUID   string            `json:"namespaceUID,omitempty"` // empty: not known
	SandboxID      string            `json:"sandboxID"`
	Node           string            `json:"node"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Group          map[string]string `json:"group,omitempty"`
	SpecHash       string            `json:"specHash,omitempty"`
	Cluster        string            `json:"cluster,omitempty"` // id of the cluster that asked for it; empty: none
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
	// Repaired says that runsc was not built from gVisor's source as it is, but from one with changes, such as those of
	// runsc/fast. It decides nothing.
	Repaired bool `json:"repaired,omitempty"`
}

// Pod is the recorded configuration. A new pod can be made from it without Kubernetes.
type Pod struct {
	RuntimeHandler string          `json:"runtimeHandler,omitempty"`
	Sandbox        json.RawMessage `json:"sandbox,omitempty"` // runtime.v1.PodSandboxConfig
	Containers     []Container     `json:"containers,omitempty"`
	// Ended are the containers that had ended and did not run again, in order of creation.
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
	// Image is the digest of the image's configuration, which names the digests of its layers. Empty: not known.
	Image string `json:"image,omitempty"`
	// Terminal is the settings of the container's terminal; nil: it has none, or they are not known.
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Stage is one step of a checkpoint. The stages of a timeline follow each other without a gap, so that their sum is
// the whole.
type Stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"` // nanoseconds
}

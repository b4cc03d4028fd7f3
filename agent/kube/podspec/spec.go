package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Spec is the distilled spec of a pod. Its JSON is the canonical encoding of version v1. A new field, or a new
// meaning of a field, needs a new version.
type Spec struct {
	Annotations           map[string]string          `json:"annotations,omitempty"` // of gVisor
	JobCompletionIndex    string                     `json:"jobCompletionIndex,omitempty"`
	RuntimeClassName      string                     `json:"runtimeClassName,omitempty"`
	SecurityContext       *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	HostNetwork           bool                       `json:"hostNetwork,omitempty"`
	HostPID               bool                       `json:"hostPID,omitempty"`
	HostIPC               bool                       `json:"hostIPC,omitempty"`
	ShareProcessNamespace bool                       `json:"shareProcessNamespace,omitempty"`
	Volumes               []Volume                   `json:"volumes,omitempty"` // by name
	InitContainers        []Container                `json:"initContainers,omitempty"`
	Containers            []Container                `json:"containers,omitempty"`
}

// Volume is a distilled volume. For most sources, only their kind counts.
type Volume struct {
	Name                  string                                    `json:"name"`
	Source                string                                    `json:"source"` // the kind, as in the pod's spec
	HostPath              *corev1.HostPathVolumeSource              `json:"hostPath,omitempty"`
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	ConfigMap             *corev1.ConfigMapVolumeSource             `json:"configMap,omitempty"`
}

// Container is a distilled container.
type Container struct {
	Name                     string                          `json:"name"`
	Image                    string                          `json:"image"`
	Sidecar                  bool                            `json:"sidecar,omitempty"` // an init container that runs on
	Command                  []string                        `json:"command,omitempty"`
	Args                     []string                        `json:"args,omitempty"`
	WorkingDir               string                          `json:"workingDir,omitempty"`
	Ports                    []Port                          `json:"ports,omitempty"`  // by number and protocol
	Mounts                   []Mount                         `json:"mounts,omitempty"` // by path
	Devices                  []string                        `json:"devices,omitempty"`
	PostStart                *corev1.LifecycleHandler        `json:"postStart,omitempty"`
	PreStop                  *corev1.LifecycleHandler        `json:"preStop,omitempty"`
	TerminationMessagePath   string                          `json:"terminationMessagePath,omitempty"`
	TerminationMessagePolicy corev1.TerminationMessagePolicy `json:"terminationMessagePolicy,omitempty"`
	SecurityContext          *corev1.SecurityContext         `json:"securityContext,omitempty"`
	Stdin                    bool                            `json:"stdin,omitempty"`
	StdinOnce                bool                            `json:"stdinOnce,omitempty"`
	TTY                      bool                            `json:"tty,omitempty"`
}

// Port is a distilled port.
type Port struct {
	Name     string          `json:"name,omitempty"`
	Number   int32           `json:"containerPort"`
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}

// Mount is a distilled mount of a volume.
type Mount struct {
	Name              string                        `json:"name"`
	Path              string                        `json:"mountPath"`
	ReadOnly          bool                          `json:"readOnly,omitempty"`
	RecursiveReadOnly *corev1.RecursiveReadOnlyMode `json:"recursiveReadOnly,omitempty"`
	SubPath           string                        `json:"subPath,omitempty"`
	SubPathExpr       string                        `json:"subPathExpr,omitempty"`
	Propagation       *corev1.MountPropagationMode  `json:"mountPropagation,omitempty"`
}

// version names the canonical encoding in hashes.
const version = "v1:"

// Encode returns the canonical encoding.
func (s *Spec) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode distilled spec: %v", err)) // all types in it can be encoded
	}
	return b
}

// Hash returns the version of the encoding and its SHA-256 in hexadecimal digits, for example "v1:5e88…". Equal specs
// have equal hashes.
func (s *Spec) Hash() string {
	sum := sha256.Sum256(s.Encode())
	return version + hex.EncodeToString(sum[:])
}

// MaxEncoded bounds the size, in bytes, of an encoding that is stored or decoded.
const MaxEncoded = 64 << 10

// Decode decodes an encoding, and checks that it has the given hash.
func Decode(b []byte, hash string) (*Spec, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("decode distilled spec: %d bytes, at most %d are allowed", len(b), MaxEncoded)
	}
	s := new(Spec)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("decode distilled spec: %w", err)
	}
	if got := s.Hash(); got != hash {
		return nil, fmt.Errorf("decode distilled spec: its hash is %s, not %.80s", got, hash)
	}
	return s, nil
}

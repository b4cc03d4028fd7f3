package shim

// Annotations of an OCI spec that tell a container's place in its pod, of containerd's CRI and of
// CRI-O.
var (
	typeAnnotations    = []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}
	nameAnnotations    = []string{"io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName"}
	uidAnnotations     = []string{"io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"}
	sandboxAnnotations = []string{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"}
)

// Annotations of a pod that ask for a restore.
const (
	annotationRestoreFrom = "diapause.dev/restore-from"
	annotationSnapshot    = "podsnapshot.gke.io/ps-name"
	annotationOnFailure   = "diapause.dev/on-restore-failure"
	onFailureFail         = "Fail"
)

// pod is what a container's OCI spec says of its pod.
type pod struct {
	uid         string // that Kubernetes gave it; empty: none
	sandbox     string // id of the sandbox container; empty: not of a pod
	isSandbox   bool   // this container is the sandbox container
	container   string // this container's name in its pod; empty: it has none
	network     string // path of its network namespace; empty: it has none of its own
	cgroup      string // path of its cgroup, as an OCI spec has it
	annotations map[string]string
}

func podOf(annotations map[string]string) pod {
	return pod{
		uid:         first(annotations, uidAnnotations),
		sandbox:     first(annotations, sandboxAnnotations),
		isSandbox:   first(annotations, typeAnnotations) == "sandbox",
		container:   first(annotations, nameAnnotations),
		annotations: annotations,
	}
}

func first(m map[string]string, keys []string) string {
	for _, k := range keys {
		if v := m[k]; v != "" {
			return v
		}
	}
	return ""
}

// named reports whether the pod names a snapshot to be restored from.
func (p pod) named() bool {
	return p.annotations[annotationRestoreFrom] != "" || p.annotations[annotationSnapshot] != ""
}

// strict reports whether the pod shall rather fail than start anew when it cannot be restored.
func (p pod) strict() bool { return p.annotations[annotationOnFailure] == onFailureFail }

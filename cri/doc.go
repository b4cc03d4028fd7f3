// Package cri contains everything that depends on containerd, and on the pods of this node. It finds the pod that an
// operator means. It asks containerd to checkpoint, pause and resume the pod's sandbox, and ends the sandbox. It
// records the configuration that the pod was made from, and makes a new pod from such a record: package plan decides
// what that pod gets.
//
// A Client has one part for each of these subjects. A part knows only the parts below it.
//
// The package speaks to containerd over one socket, in two ways. The kubelet's way is the Container Runtime Interface
// (CRI): it makes, lists and removes pods. Containerd's own task service is for what the CRI cannot do: checkpoint,
// pause, resume, and finding the process of a sandbox.
//
// A pod is identified by the id of its sandbox container. The package knows nothing of gVisor's image files, of the
// storage of snapshots, or of Kubernetes' API server.
package cri

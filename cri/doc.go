// Package cri holds all that Diapause knows of containerd and of the pods on this node: finding
// the pod that an operator means, asking containerd to checkpoint, pause and resume its sandbox,
// ending it, recording the configuration it was made from, and making a new pod from such a
// record.
//
// It speaks to containerd over one socket in two ways. The Container Runtime Interface (CRI) is
// the kubelet's way and the one that makes, lists and removes pods. Containerd's own task service
// is used for what the CRI cannot say: checkpoint, pause, resume, and the process of a sandbox.
//
// A pod is known here by the id of its sandbox container. The package knows nothing of gVisor's
// image files, of snapshots' storage, or of Kubernetes' API server.
package cri

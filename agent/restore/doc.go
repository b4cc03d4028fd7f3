// Package restore brings sandboxes back from snapshots. The local service decides whether a sandbox is restored.
// restore.go prepares the restore. source.go serves the bytes that the sandbox then reads.
//
// Restores of root file systems end differently from those of whole pods: see rootfs.go. pods.go starts pods without
// Kubernetes.
//
// The order in which locks are taken is in docs/design/architecture.md, "Locks".
package restore

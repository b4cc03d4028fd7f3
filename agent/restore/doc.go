// Package restore brings sandboxes back from snapshots. The local service decides whether a sandbox is restored.
// restore.go prepares the restore. source.go serves the bytes that the sandbox then reads.
//
// Restores of root file systems end differently from those of whole pods: see rootfs.go. pods.go starts pods without
// Kubernetes.
//
// Locks are taken in this order: Restores.mu, then the lock of one restore, then those of package snapshots.
package restore

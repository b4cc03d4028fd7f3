// Package restore brings sandboxes back from snapshots. A restore is a decision of the local service, prepared here
// (restore.go), and a source of bytes that the sandbox then reads (source.go).
//
// Restores of root file systems differ from those of whole pods in how they end: see rootfs.go. Without Kubernetes,
// pods are started here, too (pods.go).
//
// Locks are taken in this order: Restores.mu, then that of one restore, then those of package snapshots.
package restore

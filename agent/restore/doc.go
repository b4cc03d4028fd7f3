// Package restore brings sandboxes back from snapshots. The local service decides whether a sandbox is restored.
//
// state.go has one restore: what is known of it, and its states.
//
// Restores are the life of a restore: restore.go prepares it, and end.go ends it. A registry has those under way. An
// opener opens their snapshots. source.go serves one sandbox, from what package loading hands out. Wakes are the
// restores of pods that sleep, and Needs say which snapshots those pods need.
//
// Restores of root file systems end differently from those of whole pods: see rootfs.go.
//
// The order in which locks are taken is in docs/design/architecture.md, "Locks".
package restore

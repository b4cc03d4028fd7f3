// Package sleep puts pods to sleep and wakes them. A pod that sleeps costs no memory: its sandbox is saved and gone,
// and everything else of the pod stays. It is the agent's side; what happens to the pod is done by its shim (package
// runsc/shim), which also wake it by themselves when a packet comes.
//
// A sleep is a checkpoint (package checkpoint) that hands the sandbox over, a wake a restore (package restore). Sleeps
// put pods to sleep, and note what becomes of them. A Waker wakes them, and checkpoints need it, too. A Collector
// removes the snapshots of sleeps that are over.
package sleep

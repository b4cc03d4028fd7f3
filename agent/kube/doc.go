// Package kube is the agent's side of Kubernetes: it implements agent.Cluster and drives an agent
// from the objects of podsnapshot.gke.io/v1. What is to be done is decided by package rules; here
// objects are watched and answers written.
//
//   - Node duties, of every agent: checkpoints that triggers and pod annotations ask for,
//     PodSnapshots as the agent's journal has them, what new pods are restored from
//     ([Cluster.Choose]), and how that went ([Cluster.Restored]).
//   - Cluster duties, of the one agent that holds a Lease: retention, deletion where the
//     origin node does not see to it, statuses of policies and storage configs, triggers that no
//     node answers, and sweeping the stores of what no PodSnapshot names.
//
// Every step can be taken again: reconcilers look at the objects, at the agent's journal and at the
// ledger, which keeps across restarts what neither has, and do what is missing. A checkpoint itself
// runs in a goroutine of the [Cluster]; its snapshot's name is derived from what asked for it, so that
// no request ever makes two.
package kube

// Package rules decides what is to be done with the objects of podsnapshot.gke.io/v1: which policy
// counts for a pod and what its checkpoint has to carry, from which snapshot a new pod is restored,
// which snapshots are not kept, and what the conditions of all of them say. It only looks at objects
// that it is given; package kube gets them from the API server and writes what comes out.
//
// A refusal is an error of type [*Refusal]: it names the object and says what to do, and trying
// again without a change of some object does not help.
package rules

// Package rules decides what to do with the objects of podsnapshot.gke.io/v1: which policy applies to a pod, what a
// pod's checkpoint carries, from which snapshot a new pod is restored, which snapshots are deleted, and what the
// conditions of all objects say. It only looks at objects that it is given. Package kube gets these from the API
// server, and writes the results.
//
// A refusal is an error of type [*Refusal]. It names the object and says what to do. To retry does not help unless
// some object changes.
package rules

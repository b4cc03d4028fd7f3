// Package podspec distils from a pod what must be equal in the pod that is restored from its
// snapshot: what shaped the processes and files that the snapshot holds. It says whether two
// distilled specs are equal (by their hash) and in words where they differ.
//
// Labels, environment variables, resources, probes and all that concerns scheduling do not count.
package podspec

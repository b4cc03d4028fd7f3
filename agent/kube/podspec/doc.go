// Package podspec distils a pod's spec to what must be equal in a pod that is restored from its snapshot: everything
// that shaped the processes and files in the snapshot. It says whether two distilled specs are equal (by their
// hashes), and in words where they differ.
//
// Labels, environment variables, resources, probes and scheduling do not count.
package podspec

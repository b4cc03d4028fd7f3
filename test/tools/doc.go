// Package tools builds the programs that the tests, the demo and the
// benchmarks run: runsc, containerd and a fake object store from the versions
// that the go.mod files pin, the programs of this module, and for those who ask
// (see [Extra]) the servers of Kubernetes.
//
// What takes minutes to build is kept under .cache/bin, in a directory whose
// name is a digest of all that went into it; a later call finds it there. The
// programs of this module are built anew each time, which the Go build cache
// makes cheap. Several processes may call [Build] at once: a file lock lets one
// build while the others wait.
//
// Debian packages that the programs need at run time are installed by [Packages]
// when they are missing and the caller is root.
package tools

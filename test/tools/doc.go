// Package tools builds the programs that the tests, the demo and the
// benchmarks run: runsc, containerd and a fake object store from the versions
// that the go.mod files pin, the programs of this module, and for those who ask
// (see [Extra]) the servers of Kubernetes.
//
// What takes minutes to build is kept outside of the checkout, for all of them,
// see [CacheDir]: in a directory whose name ends with a digest of all that went
// into it. A later call, from whichever checkout, finds it there. The programs
// of this module are built anew each time, which the Go build cache makes cheap.
// They and links to the others are in .cache/bin/current of the checkout.
//
// Several processes, of one checkout or of several, may call [Build] at once:
// for each set of programs a file lock lets one build it while those wait that
// need it, too. What a killed build leaves is never taken for programs, and a
// later build removes it. [Clean] removes all.
//
// Debian packages that the programs need at run time are installed by [Packages]
// when they are missing and the caller is root.
package tools

// Package install puts Diapause's runtime on a node and takes it away again: the shim, runsc and
// its sidecar under one directory of the host, runsc's configuration beside them, and a drop-in
// for containerd that makes the runtime handlers known.
//
// Installing again changes only what differs, file by file and by rename, so that what runs from
// an old file is not disturbed. Whether containerd has to be restarted is decided by asking the
// running containerd for its handlers, never by what this or an earlier installation did: one that
// was killed half-way is completed by the next.
//
// Paths of the host are given as the host sees them; Options.Host says where the host's root is
// seen from here, as it is mounted in a container.
package install

// Package install installs Diapause's runtime on a node, and removes it again. It puts the shim, runsc and its
// sidecar under one directory of the host, runsc's configuration beside them, and a drop-in with the runtime handlers
// into containerd's configuration.
//
// A repeated installation changes only what differs, file by file and by rename, so that processes that run from an
// old file are not disturbed. To decide whether containerd must be restarted, the package asks the running containerd
// for its handlers. It does not matter what this or an earlier installation did: an installation that was killed
// halfway is completed by the next one.
//
// Paths of the host are given as the host sees them. Options.Host says where the host's root is mounted here.
package install

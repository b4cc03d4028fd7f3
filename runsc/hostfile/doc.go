// Package hostfile notes the files of the node that a sandbox holds open in volumes outside its snapshot. Later it
// recognizes whether a volume has gone on without the snapshot.
//
// Find looks for these files shortly before the sandbox is paused, because that takes a while. Note reads their sizes
// and times during the pause, because a running program changes them. Compare reads them again before a restore.
package hostfile

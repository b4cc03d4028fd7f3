// Package hostfile finds the files of the node that a sandbox holds. Of those in volumes outside its snapshot it notes
// what is needed to recognize later whether a volume has gone on without the snapshot. Of those in volumes that the
// kubelet writes it finds the content: these have other paths in each pod.
//
// Find looks for these files shortly before the sandbox is paused, because that takes a while. Note reads their sizes
// and times during the pause, because a running program changes them. Compare reads them again before a restore.
package hostfile

// Package admission lets pods that sleep wake as the node's memory allows. Pods that sleep use none, so a node may
// promise more memory than it has. A wake that does not fit waits, and idle pods that may sleep are put to sleep for
// it.
//
// The package decides when a wake begins, and which pod makes room. What is idle, and who may sleep, is the cluster's
// to say; how pods wake and fall asleep is done by others.
package admission

// Package rollback notices that a cluster was brought back from an older backup of etcd. The PodSnapshots that were
// made after the backup are missing then, though nobody deleted them. Their data must not be removed for that.
//
// The cluster counts. Its Lease has a line: a count, and the terms in which the count came about. A term begins
// whenever a controller cannot continue what it has itself written last. The controller counts on after PodSnapshots
// were made, and then leaves a mark (term and count) in each store. Each agent keeps a mark on its node. A mark that is
// not on the cluster's line is of a later state that the cluster has lost. This stays true however far the cluster
// counts on afterwards, as the terms differ.
//
// While a mark is not on the line, nothing is removed there for want of a PodSnapshot, and the mark stays. An
// administrator ends that by the annotation AnnotationSweepAgain of the Lease: marks of before that time no longer
// count.
package rollback

// Package idle judges, by the counters of the kernel, whether anybody uses the pods of this node. It knows nothing of
// what follows from that.
package idle

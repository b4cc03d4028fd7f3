// Package kubelet knows what other programs of a node must know of its kubelet: whether it runs, where it keeps the
// volumes of pods, and which connections are its probes.
package kubelet

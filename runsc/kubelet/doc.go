// Package kubelet knows what other programs of a node must know of its kubelet: whether it runs, and where it keeps the
// volumes of pods.
package kubelet

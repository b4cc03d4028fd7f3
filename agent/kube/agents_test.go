package kube_test

import (
	"fmt"
	"testing"

	"diapause.dev/agent/kube"
)

// TestAgents: agents are counted without listing their pods.
func TestAgents(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	for want := range int64(4) {
		if got, err := kube.Agents(r.Cluster, t.Context()); got != want || err != nil {
			t.Errorf("%d pods are counted as %d, %v", want, got, err)
		}
		w.pod(a, fmt.Sprint("agent", want))
	}
}

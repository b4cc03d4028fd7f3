package local

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kinds of interfaces that plugins make. What is in none of the lists, such as a plugin that asks others, is not known.
func vethPlugins() []string { return []string{"bridge", "calico", "ptp"} }

func otherPlugins() []string {
	return []string{"host-device", "ipvlan", "macvlan", "sriov", "vlan"}
}

// infinibandPlugins make interfaces that are no Ethernet: see [sleep.NewWaker].
func infinibandPlugins() []string { return []string{"ib-sriov", "ib-sriov-cni", "ipoib"} }

// describeNetwork says what the plugins of containerd's networks mean for pods that sleep. None of it is a failure:
// pods that never sleep need nothing of it.
func describeNetwork(s settings, err error) string {
	if err != nil {
		return "unknown: " + err.Error()
	}
	if len(s.networks) == 0 {
		return "unknown: containerd has loaded no network configuration"
	}
	var out []string
	for _, plugin := range s.networks {
		switch {
		case slices.Contains(vethPlugins(), plugin):
			out = append(out, plugin+": pods have veth pairs")
		case slices.Contains(otherPlugins(), plugin):
			out = append(out, "attention: "+plugin+" makes no veth pairs: a packet for a sleeping pod is dropped, even if it "+
				"wakes the pod; use another plugin for pods that sleep")
		case slices.Contains(infinibandPlugins(), plugin):
			out = append(out, "attention: "+plugin+" makes no Ethernet interfaces: pods cannot sleep; use another plugin for "+
				"those that are to")
		default:
			out = append(out, fmt.Sprintf("%.80q: unknown whether pods have veth pairs", plugin))
		}
	}
	return strings.Join(out, "; ")
}

// From manyAsleep sleeping pods on, containerd should not ask more often than wantedPeriod: docs/tasks/sleep.md.
const (
	manyAsleep   = 100
	wantedPeriod = 10 * time.Second
)

// describeAsleep says how many pods an update to another version of gVisor would end, and whether containerd asks them
// too often. A period of 0 is not known.
func describeAsleep(n int, version string, period time.Duration) string {
	if n == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d: only gVisor %s can wake them; with another version they end at their next wake", n, version)
	if n >= manyAsleep && period > 0 && period < wantedPeriod {
		text += fmt.Sprintf("; attention: containerd asks each of them for statistics every %v: set stats_collect_period "+
			"= \"10s\" in its [plugins.'io.containerd.cri.v1.runtime']", period)
	}
	return text
}

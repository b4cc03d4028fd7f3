package local

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestDescribeAsleep: doctor says how many pods another gVisor would cost, and of many pods that containerd asks them
// too often. Of a period that is not known it says nothing.
func TestDescribeAsleep(t *testing.T) {
	if got := describeAsleep(0, "1", time.Second); got != "none" {
		t.Error(got)
	}
	for _, c := range []struct {
		n       int
		period  time.Duration
		warning string
	}{
		{3, time.Second, ""},
		{99, time.Second, ""},
		{100, time.Second, "every 1s: set stats_collect_period = \"10s\""},
		{100, 9 * time.Second, "every 9s: set"},
		{100, 10 * time.Second, ""},
		{500, 0, ""},
	} {
		got := describeAsleep(c.n, "1", c.period)
		said := strings.Contains(got, "attention")
		if !strings.Contains(got, ": only gVisor 1 can wake them") || said != (c.warning != "") ||
			!strings.Contains(got, c.warning) {
			t.Errorf("%d, %v: %s", c.n, c.period, got)
		}
	}
}

// TestDescribeNetwork: plugins whose interfaces are known get a verdict, and others none.
func TestDescribeNetwork(t *testing.T) {
	for _, c := range []struct {
		networks string
		err      error
		want     string
	}{
		{"bridge", nil, "bridge: pods have veth pairs"},
		{"macvlan", nil, "attention: macvlan makes no veth pairs: a packet for a sleeping pod is dropped, even if it " +
			"wakes the pod; use another plugin for pods that sleep"},
		{"ib-sriov", nil, "attention: ib-sriov makes no Ethernet interfaces: pods cannot sleep; use another plugin for " +
			"those that are to"},
		{"cilium-cni", nil, `"cilium-cni": unknown whether pods have veth pairs`},
		{"multus ptp", nil, `"multus": unknown whether pods have veth pairs; ptp: pods have veth pairs`},
		{"", nil, "unknown: containerd has loaded no network configuration"},
		{"", errors.New("it does not answer"), "unknown: it does not answer"},
	} {
		if got := describeNetwork(settings{networks: strings.Fields(c.networks)}, c.err); got != c.want {
			t.Errorf("%q, %v: %s", c.networks, c.err, got)
		}
	}
}

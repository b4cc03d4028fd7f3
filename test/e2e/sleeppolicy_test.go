package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// sleepPolicy has pods sleep soon that are not used. Each pod that starts asks all pods of its node for addresses.
// Beside other tests, these are more than the usual six packets a minute.
const sleepPolicy = `
apiVersion: diapause.dev/v1alpha1
kind: SleepPolicy
metadata: {name: idle, namespace: %s}
spec:
  selector: {matchLabels: {app: workload}}
  idleAfter: 3s
  idle: {cpuMillicores: 500, packetsPerMinute: 600}
`

// TestSleepPolicyUnderKubelet has a SleepPolicy put an idle pod to sleep, whose probes go on. The machine
// may be slow: its probes take processor time. A request to its address
// wakes it, and finds it whole. Unused again, it sleeps again.
func TestSleepPolicyUnderKubelet(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	p := w.run(w.pod("web", withProbes))
	before := w.life(p)
	for range 2 {
		w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
		w.staysProbed("web")
		w.wakesBy("web", "packet", func() { w.whole(p, before) })
	}
	if out := w.kubectl("get", "sleeppolicies", "--no-headers"); !strings.Contains(out, "Valid") {
		t.Errorf("the policy: %s", out)
	}
}

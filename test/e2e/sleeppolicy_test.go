package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/test/pages"
	"golang.org/x/sys/unix"
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

// TestIgnoredTraffic has a pod sleep that somebody asks all the time, by a port that its policy ignores. While it
// sleeps it refuses that. A connection to another port wakes it, and finds it whole.
func TestIgnoredTraffic(t *testing.T) {
	t.Parallel()
	w := begin(t)
	ignore := pages.Text(t, "../..", "docs/tasks/sleep.md", "ignore:\n", "port: 9090", "port: 8080")
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace) + "  " + strings.ReplaceAll(ignore, "\n", "\n  "))
	p := w.run(w.pod("web"))
	before := w.life(p)
	var answered, refused int
	scrape := time.NewTicker(200 * time.Millisecond) // far more packets than the policy allows
	defer scrape.Stop()
	w.eventually("it sleeps, and refuses what is ignored", func() error {
		<-scrape.C
		switch err := w.ask(p, "/state", new(struct{})); {
		case err == nil:
			answered++
		case errors.Is(err, unix.ECONNREFUSED):
			refused++
		default:
			return err
		}
		if refused < 10 {
			return fmt.Errorf("%d requests were refused, %d answered", refused, answered)
		}
		return w.condition("web", corev1.ConditionTrue, "")
	})
	if answered == 0 {
		t.Error("it was never asked while it was awake")
	}
	w.kubectl("delete", "sleeppolicies", "idle") // it is not to sleep again
	w.wakesBy("web", "packet", func() {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(p.Status.PodIP, "9"), time.Minute)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) { // nobody listens there
			t.Errorf("the port that wakes it: %v", err)
		}
	})
	w.whole(p, before)
}

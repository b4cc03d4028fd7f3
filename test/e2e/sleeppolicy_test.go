package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
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

// TestAnswerOwed has a pod asked for what takes far longer than its policy's idleAfter, and costs it nothing. It stays
// awake until it has answered, and sleeps then. Once the policy's answerWithin is over, it sleeps on a request.
func TestAnswerOwed(t *testing.T) {
	t.Parallel()
	w := begin(t)
	p := w.run(w.pod("web"))
	before := w.life(p)
	answer := w.later(p, 15)
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	w.eventually("it answers", func() error {
		select {
		case err := <-answer:
			w.must(err)
			return nil
		default:
			return errors.New("no answer yet")
		}
	})
	out := w.kubectl("get", "events", "--output=custom-columns=:reason")
	if strings.Contains(out, podsnapshotv1.ReasonSlept) {
		t.Errorf("it slept, and owed an answer:\n%s", out)
	}
	w.eventually("it sleeps", func() error { return w.condition("web", corev1.ConditionTrue, "") })
	w.apply(strings.Replace(fmt.Sprintf(sleepPolicy, w.namespace), "600}", "600, answerWithin: 1s}", 1))
	w.wakesBy("web", "packet", func() { w.whole(p, before) })
	w.later(p, 300)
	w.eventually("it sleeps on a request", func() error { return w.condition("web", corev1.ConditionTrue, "") })
}

// later has a pod asked for an answer that it gives after some seconds. Nothing is sent meanwhile.
func (w *world) later(p *ready, seconds int) chan error {
	answer := make(chan error, 1)
	go func() {
		t := &http.Transport{DialContext: (&net.Dialer{KeepAlive: -1}).DialContext}
		defer t.CloseIdleConnections()
		url := fmt.Sprintf("http://%s/later?seconds=%d", net.JoinHostPort(p.Status.PodIP, "8080"), seconds)
		r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url, nil)
		if err == nil {
			var resp *http.Response
			if resp, err = t.RoundTrip(r); err == nil {
				err = resp.Body.Close()
			}
		}
		answer <- err
	}()
	return answer
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

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// moreProbes is how many more results of each probe [world.staysProbed] waits for: with more than three that fail, the
// kubelet says that a pod is not Ready, or restarts its container.
const moreProbes = 4

// staysProbed waits until each probe of a pod that sleeps has succeeded some more times. The pod sleeps on. One that
// was under way as the pod fell asleep may fail, and no other.
func (w *world) staysProbed(pod string) {
	w.Helper()
	began, err := w.probes(pod)
	w.must(err)
	w.eventually("probes of "+pod, func() error {
		w.well(pod)
		now, err := w.probes(pod)
		if err != nil {
			return err
		}
		return w.moreSucceeded(began, now)
	})
}

// moreSucceeded returns an error unless each probe has succeeded some more times. It fails the test if one has failed
// more than once.
func (w *world) moreSucceeded(began, now map[probe]int) (err error) {
	w.Helper()
	for p, count := range now {
		more := count - began[p]
		switch {
		case p.result != "successful" && more > 1:
			w.Fatalf("%d probes of a pod that sleeps: %+v", more, p)
		case p.result == "successful" && more < moreProbes:
			err = errors.Join(err, fmt.Errorf("%+v: %d more", p, more))
		}
	}
	if len(now) == 0 {
		err = errors.New("the kubelet counts no probes")
	}
	return err
}

// probe is a kind of probe of a container, and one of the results that it has.
type probe struct{ container, kind, result string }

// probes returns how often the kubelet has got each result of a probe of a pod.
func (w *world) probes(pod string) (map[probe]int, error) {
	path := "/api/v1/nodes/" + w.get(pod).Spec.NodeName + "/proxy/metrics/probes"
	text, err := w.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(w.ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[probe]int)
	for line := range strings.Lines(string(text)) {
		metric, ok := strings.CutPrefix(line, "prober_probe_total{")
		labels, value, _ := strings.Cut(metric, "} ")
		of := make(map[string]string)
		for l := range strings.SplitSeq(labels, ",") {
			name, value, _ := strings.Cut(l, "=")
			of[name] = strings.Trim(value, `"`)
		}
		if !ok || of["namespace"] != w.namespace || of["pod"] != pod {
			continue
		}
		count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		all[probe{of["container"], of["probe_type"], of["result"]}] = int(count)
	}
	return all, nil
}

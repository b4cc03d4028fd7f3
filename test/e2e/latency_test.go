package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

const latencyMiB = 64

// latencies are how long things took that are measured in turn.
type latencies struct{ checkpoint, cold, same, other samples }

// BenchmarkLatency prints how long a trigger takes until it is Complete, and a pod until it is Ready: cold, restored on
// its node, and restored on the other one, in turn.
func BenchmarkLatency(b *testing.B) {
	w := begin(b)
	var l latencies
	for i := 0; b.Loop(); i++ {
		w.measure(&l, i)
	}
	b.Logf("%d pods of %d MiB, in turn:\n%s", b.N, latencyMiB, &l)
}

// TestLatency goes through one round of the benchmark.
func TestLatency(t *testing.T) {
	t.Parallel()
	w := begin(t)
	var l latencies
	w.measure(&l, 0)
	t.Logf("once, beside other tests:\n%s", &l)
}

// measure goes through the i-th round of the benchmark.
func (w *world) measure(l *latencies, i int) {
	w.Helper()
	name, here, there := fmt.Sprintf("pod-%d", i), w.Node(i%2), w.Node(1-i%2)
	filled := command("/bin/workload", "serve", fmt.Sprintf("--mib=%d", latencyMiB))
	first := w.run(w.pod(name, on(here), filled))
	l.cold.add(first.took, first.stages)
	before := w.life(first)
	s := w.checkpoint(first)
	l.checkpoint.add(s.took, append(s.stages, w.timeline(here, s.name)...))
	w.remove(name)
	again := w.run(w.pod(name, on(here), filled))
	l.same.add(again.took, again.stages)
	w.restored(again, s.name, before)
	w.remove(name)
	w.replicated(s.name)
	again = w.run(w.pod(name, on(there), filled))
	l.other.add(again.took, again.stages)
	w.restored(again, s.name, before)
	w.remove(name)
	w.discard(s.name)
}

func (l *latencies) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ms\tp50\tp90\t")
	l.checkpoint.print(table, "trigger created to Complete")
	l.cold.print(table, "pod created to Ready, cold")
	l.same.print(table, "restored, same node")
	l.other.print(table, "restored, other node")
	table.Flush() // into memory
	return b.String()
}

// stage is a moment on the way of what is measured, counted from the beginning, or what a part of it
// took.
type stage struct {
	name string
	took time.Duration
}

// timeline is what the agent of a node says of the stages of a checkpoint.
func (w *world) timeline(n *bed.Node, snapshot string) (stages []stage) {
	w.Helper()
	text, err := n.Exec(w.ctx, "diapause", "--output=json", "inspect", w.namespace+"/"+snapshot)
	w.must(err)
	var s struct {
		Timeline []struct {
			Name   string
			TookMS float64 `json:"took_ms"`
		}
	}
	w.must(json.Unmarshal([]byte(text), &s))
	for _, x := range s.Timeline {
		stages = append(stages, stage{"of it the agent's " + x.Name, time.Duration(x.TookMS * float64(time.Millisecond))})
	}
	return stages
}

// samples are repeated measurements of one thing and of the stages on its way.
type samples struct {
	total  []time.Duration
	names  []string // of stages, in order
	stages map[string][]time.Duration
}

func (s *samples) add(total time.Duration, stages []stage) {
	s.total = append(s.total, total)
	if s.stages == nil {
		s.stages = make(map[string][]time.Duration)
	}
	for _, x := range stages {
		if s.stages[x.name] == nil {
			s.names = append(s.names, x.name)
		}
		s.stages[x.name] = append(s.stages[x.name], x.took)
	}
}

func (s *samples) print(to *tabwriter.Writer, what string) {
	line := func(name string, d []time.Duration) {
		fmt.Fprintf(to, "%s\t%d\t%d\t\n", name, quantile(d, 50).Milliseconds(), quantile(d, 90).Milliseconds())
	}
	line(what, s.total)
	for _, name := range s.names {
		line(name, s.stages[name])
	}
}

// quantile is the value that so many per cent of all do not exceed.
func quantile(d []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// podStages are the moments of a pod on its way to be Ready, by the condition that says so.
var podStages = []struct {
	condition corev1.PodConditionType
	name      string
}{
	{corev1.PodScheduled, "until it is scheduled"},
	{corev1.PodReadyToStartContainers, "until its sandbox runs"},
	{podsnapshotv1.ConditionPodRestored, "until it is restored"},
}

// reached adds the stages that a pod has reached by now to those that it had reached before.
func reached(stages []stage, p *corev1.Pod, now time.Duration) []stage {
	for _, x := range podStages {
		if condition(p, x.condition).Status == corev1.ConditionTrue &&
			!slices.ContainsFunc(stages, func(s stage) bool { return s.name == x.name }) {
			stages = append(stages, stage{x.name, now})
		}
	}
	return stages
}

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

const (
	rounds     = 12 // how often each thing is measured
	latencyMiB = 64
)

// TestLatency prints how long a trigger takes until it is Complete, and a pod until it is Ready:
// cold, restored on its node, and restored on the other one, in turn.
func TestLatency(t *testing.T) {
	w := begin(t)
	var checkpoints, cold, same, other samples
	for i := range rounds {
		name := fmt.Sprintf("pod-%d", i)
		there := command("/bin/workload", "serve", fmt.Sprintf("--mib=%d", latencyMiB))
		first := w.run(w.pod(name, on(w.Node(i%2)), there))
		cold.add(first.took, first.stages)
		before := w.life(first)
		s := w.checkpoint(first)
		checkpoints.add(s.took, append(s.stages, w.timeline(w.Node(i%2), s.name)...))
		w.remove(name)
		again := w.run(w.pod(name, on(w.Node(i%2)), there))
		same.add(again.took, again.stages)
		w.restored(again, s.name, before)
		w.remove(name)
		w.replicated(s.name)
		again = w.run(w.pod(name, on(w.Node(1-i%2)), there))
		other.add(again.took, again.stages)
		w.restored(again, s.name, before)
		w.remove(name)
		w.discard(s.name)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ms\tp50\tp90\t")
	checkpoints.print(table, "trigger created to Complete")
	cold.print(table, "pod created to Ready, cold")
	same.print(table, "restored, same node")
	other.print(table, "restored, other node")
	w.must(table.Flush())
	t.Logf("%d pods of %d MiB, in turn:\n%s", rounds, latencyMiB, &b)
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

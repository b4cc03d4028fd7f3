package dashboard

import "fmt"

// Units of Grafana.
const (
	inBytes        = "bytes"
	bytesPerSecond = "Bps"
	cores          = "short"
	packets        = "pps"
	perSecond      = "ops"
	seconds        = "s"
)

// of selects the agents and controllers that the user has chosen.
const of = `{pod=~"$pod"}`

// rows returns all rows, the most urgent first.
func rows() []row {
	return []row{
		{"Is anything in danger?", danger()},
		{"Do the stores work?", stores()},
		{"Do checkpoints work?", checkpoints()},
		{"Do restores work?", restores()},
		{"Do pods sleep and wake?", sleep()},
		{"Are budgets used up?", budgets()},
		{"Do agents and controllers run?", programs()},
	}
}

// danger has what threatens data or leaves pods without their state.
func danger() []panel {
	return []panel{
		{
			title: "Snapshots on one node alone", about: "Their replication has failed and is retried.",
			alarm: 1, width: 4, queries: []query{{"sum(diapause_replications_waiting" + of + ")", ""}},
		},
		{
			title: "Garbage collection stopped",
			about: "Of stores: etcd was restored from a backup, or another cluster adopted the store.",
			alarm: 1, width: 4, queries: []query{{"max(diapause_sweeps_stopped" + of + ")", ""}},
		},
		{
			title: "Failed restores", about: "In the time range. The pods' condition PodRestored has the reason.",
			alarm: 1, width: 4, queries: []query{{counted("diapause_restores_total", `result="failed"`), ""}},
		},
		{
			title: "Failed wakes", about: "Attempts in the time range.",
			alarm: 1, width: 4, queries: []query{{counted("diapause_failed_wakes_total", ""), ""}},
		},
		{
			title: "Largest clock skew", about: "Between a node and the API server. From 60 s nothing is deleted for its age.",
			unit: seconds, alarm: 30, width: 4, queries: []query{{"max(abs(diapause_clock_skew_seconds" + of + "))", ""}},
		},
		{
			title: "Kept because of clocks", about: "Deletions in the time range that were due and not done.",
			alarm: 1, width: 4, queries: []query{{counted("diapause_clock_refusals_total", ""), ""}},
		},
		{
			title: "Snapshots on one node alone, by reason", about: "denied and full need an administrator.",
			width: 12, queries: []query{{"sum by (reason) (diapause_replications_waiting" + of + ")", "{{reason}}"}},
		},
		{
			title: "Refused restores and failed pods",
			about: "Refused: the pod starts cold or fails, as its policy says. Expected after an upgrade of gVisor.",
			unit:  perSecond, width: 12, queries: []query{
				{rate("", "diapause_restore_refusals_total"), "restores refused"},
				{"sum(rate(diapause_restores_total{pod=~\"$pod\", result=\"failed\"}[$__rate_interval]))", "restores failed"},
				{rate("", "diapause_failed_wakes_total"), "wakes failed"},
			},
		},
	}
}

// stores has what a store does, and what it fails to do.
func stores() []panel {
	return []panel{
		{
			title: "Operations", unit: perSecond, width: 6,
			queries: []query{{rate("store, operation", "diapause_store_seconds_count"), "{{store}} {{operation}}"}},
		},
		{
			title: "Time of an operation, 95%", about: "The time of create includes that of the program that gives the bytes.",
			unit: seconds, width: 6,
			queries: []query{{quantile("0.95", "store, operation", "diapause_store_seconds"), "{{store}} {{operation}}"}},
		},
		{
			title: "Errors", about: "All are retried.", unit: perSecond, width: 6, queries: []query{{
				rate("store, operation, reason", "diapause_store_errors_total"), "{{store}} {{operation}}: {{reason}}",
			}},
		},
		{
			title: "Bytes", unit: bytesPerSecond, width: 6,
			queries: []query{{rate("store, direction", "diapause_store_bytes_total"), "{{store}} {{direction}}"}},
		},
	}
}

// checkpoints has how many succeed, and how long they and their pauses take.
func checkpoints() []panel {
	return []panel{
		{
			title: "Checkpoints", about: "Without those of pods that are put to sleep.", unit: perSecond, width: 6,
			queries: []query{{
				"clamp_min(" + rate("result", "diapause_checkpoints_total") + " - " +
					rate("result", "diapause_sleeps_total") + ", 0)", "{{result}}",
			}},
		},
		{
			title: "Pause", about: "The stage capture, which is the larger part of the pause.", unit: seconds, width: 6,
			queries: times("diapause_checkpoint_stage_seconds", `stage="capture"`),
		},
		{
			title: "Whole checkpoint", about: "With all waits.", unit: seconds, width: 6,
			queries: times("diapause_checkpoint_seconds", ""),
		},
		{
			title: "Time of each stage, 95%", unit: seconds, width: 6,
			queries: []query{{quantile("0.95", "stage", "diapause_checkpoint_stage_seconds"), "{{stage}}"}},
		},
	}
}

// restores has how many succeed, and how long pods load.
func restores() []panel {
	return []panel{
		{
			title: "Restores", about: "Wakes are restores, too.", unit: perSecond, width: 8, queries: []query{
				{rate("result", "diapause_restores_total"), "{{result}}"},
				{rate("", "diapause_restore_refusals_total"), "refused"},
			},
		},
		{
			title: "Time until all memory is loaded", about: "Pods run meanwhile.", unit: seconds, width: 8,
			queries: times("diapause_restore_load_seconds", ""),
		},
		{
			title: "Memory that restores read", unit: bytesPerSecond, width: 8,
			queries: []query{{rate("", "diapause_restore_bytes_total"), "read"}},
		},
	}
}

// sleep has how pods go to sleep, and how long their clients wait.
func sleep() []panel {
	return []panel{
		{
			title: "Pods asleep", about: "Ready ones have a sandbox for their wake.", width: 6, queries: []query{
				{"sum by (pod) (diapause_pods_asleep" + of + ")", "{{pod}}"},
				{"sum(diapause_pods_ready" + of + ")", "ready"},
			},
		},
		{
			title: "Sleeps", about: "A few failures are normal: a packet that comes meanwhile keeps the pod awake.",
			unit: perSecond, width: 6, queries: []query{
				{rate("result", "diapause_sleeps_total"), "{{result}}"},
				{rate("result", "diapause_sleeps_for_memory_total"), "for memory: {{result}}"},
				{rate("result", "diapause_pods_made_ready_total"), "made ready: {{result}}"},
				{rate("reason", "diapause_ready_pods_dropped_total"), "no longer ready: {{reason}}"},
			},
		},
		{
			title: "Wakes", about: "By what woke the pod.", unit: perSecond, width: 6,
			queries: []query{{rate("cause", "diapause_wakes_total"), "{{cause}}"}},
		},
		{
			title: "Time of a wake", about: "How long clients wait.", unit: seconds, width: 6,
			queries: times("diapause_wake_seconds", ""),
		},
		{
			title: "Wakes that wait for memory", width: 6,
			queries: []query{{"sum by (pod) (diapause_wakes_waiting" + of + ")", "{{pod}}"}},
		},
		{
			title: "Wakes by memory", about: "given-up: the pod ended before there was memory.", unit: perSecond, width: 6,
			queries: []query{{rate("result", "diapause_wake_admissions_total"), "{{result}}"}},
		},
		{
			title: "Wait for memory", about: "Of the wakes that waited.", unit: seconds, width: 6,
			queries: times("diapause_wake_wait_seconds", ""),
		},
		{
			title: "Packets for sleeping pods", about: "dropped: TCP repeats them.", unit: packets, width: 6,
			queries: []query{{rate("result", "diapause_wake_packets_total"), "{{result}}"}},
		},
	}
}

// budgets has what the limits of the agents hold back.
func budgets() []panel {
	return []panel{
		{
			title: "Memory of checkpoints", about: "The limit is --checkpoint-memory.", unit: inBytes, width: 8,
			queries: []query{{"sum by (pod) (diapause_checkpoint_memory_bytes" + of + ")", "{{pod}}"}},
		},
		{
			title: "Checkpoints that wait for memory", width: 8,
			queries: []query{{"sum by (pod) (diapause_checkpoints_waiting" + of + ")", "{{pod}}"}},
		},
		{
			title: "Refused checkpoints, by budget", about: "docs/operations/sizing.md says which to raise.", unit: perSecond,
			width:   8,
			queries: []query{{rate("pod, budget", "diapause_checkpoint_refusals_total"), "{{pod}}: {{budget}}"}},
		},
	}
}

// programs has the agents and controllers themselves. Other programs have their metrics by the same names.
func programs() []panel {
	const ours = " and on (job, instance) diapause_build_info" + of
	return []panel{
		{
			title: "Versions", about: "Agents and controllers that serve metrics.", width: 6,
			queries: []query{{"count by (version) (diapause_build_info" + of + ")", "{{version}}"}},
		},
		{
			title: "Controllers", about: "One works, the others stand by. With none, triggers and policies do nothing.",
			width:   6,
			queries: []query{{`count(diapause_build_info{pod=~"diapause-controller-.+"})`, "controllers"}},
		},
		{
			title: "CPU", about: "In cores.", unit: cores, width: 6,
			queries: []query{{
				"sum by (pod) (rate(process_cpu_seconds_total" + of + "[$__rate_interval])" + ours + ")", "{{pod}}",
			}},
		},
		{
			title: "Memory", unit: inBytes, width: 6,
			queries: []query{{"sum by (pod) (process_resident_memory_bytes" + of + ours + ")", "{{pod}}"}},
		},
	}
}

// rate is what a counter adds in a second, by labels; no labels: all of it.
func rate(by, counter string) string {
	if by != "" {
		by = " by (" + by + ") "
	}
	return fmt.Sprintf("sum%s(rate(%s%s[$__rate_interval]))", by, counter, of)
}

// counted is what a counter has added in the time range. A matcher may choose among its series.
func counted(counter, matcher string) string {
	return fmt.Sprintf("round(sum(increase(%s%s[$__range])))", counter, matching(matcher))
}

// quantile is a quantile of a histogram, by labels.
func quantile(q, by, histogram string) string {
	return fmt.Sprintf("histogram_quantile(%s, sum by (le, %s) (rate(%s_bucket%s[$__rate_interval])))",
		q, by, histogram, of)
}

// times are the median of a histogram, and the time that one in twenty exceeds.
func times(histogram, matcher string) (all []query) {
	for _, q := range []struct{ quantile, name string }{{"0.5", "median"}, {"0.95", "95%"}} {
		all = append(all, query{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket%s[$__rate_interval])))",
			q.quantile, histogram, matching(matcher)), q.name})
	}
	return all
}

// matching is the selector of the chosen agents with one matcher more, if there is one.
func matching(matcher string) string {
	if matcher == "" {
		return of
	}
	return of[:len(of)-1] + ", " + matcher + "}"
}

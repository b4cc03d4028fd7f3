package main

import (
	"diapause.dev/test/bed"
)

// memoryRow is what one pod is charged for, and what it has added to the agent, in MiB.
type memoryRow struct {
	Mode   string  `json:"mode"`
	MemMiB int     `json:"mem_mib"`
	Pod    float64 `json:"pod_mib"`
	Agent  float64 `json:"agent_mib"`
	Took   float64 `json:"took_max_ms,omitempty"` // the longest checkpoint, from its request until it was spooled
}

// noteMemory notes what is charged now for a pod, and how much more to the agent than before there was the pod. The
// page cache of files is not counted: its first reader is charged for it, and the kernel reclaims it.
func (n *node) noteMemory(mode string, mib int, pod *bed.Pod, before bed.Memory) error {
	charged, err := n.bed.PodMemory(pod)
	if err != nil {
		return err
	}
	now, err := n.bed.AgentMemory()
	if err != nil {
		return err
	}
	row := memoryRow{Mode: mode, MemMiB: mib, Pod: inMiB(charged.Held()), Agent: inMiB(now.Held() - before.Held())}
	n.memory = append(n.memory, row)
	say("restore: %d MiB: memory: %s %.1f MiB, and %.1f MiB more of the agent", mib, mode, row.Pod, row.Agent)
	return nil
}

func inMiB(bytes int64) float64 { return float64(bytes*10>>20) / 10 }

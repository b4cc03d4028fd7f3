package usage

import (
	"testing"

	stats1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	stats2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/typeurl/v2"
)

// TestUsage looks at statistics over sleeps: processor time never decreases, and a pod that sleeps has no memory.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name string
		with func(total uint64) any
		read func(*task.StatsResponse) (total, memory uint64)
	}{
		{"v1", func(total uint64) any {
			return &stats1.Metrics{
				CPU:    &stats1.CPUStat{Usage: &stats1.CPUUsage{Total: total}},
				Memory: &stats1.MemoryStat{Usage: &stats1.MemoryEntry{Usage: 5}},
			}
		}, func(r *task.StatsResponse) (uint64, uint64) {
			m := unpack(t, r).(*stats1.Metrics)
			return m.GetCPU().GetUsage().GetTotal(), m.GetMemory().GetUsage().GetUsage()
		}},
		{"v2", func(total uint64) any {
			return &stats2.Metrics{CPU: &stats2.CPUStat{UsageUsec: total}, Memory: &stats2.MemoryStat{Usage: 5}}
		}, func(r *task.StatsResponse) (uint64, uint64) {
			m := unpack(t, r).(*stats2.Metrics)
			return m.GetCPU().GetUsageUsec(), m.GetMemory().GetUsage()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var u Usage
			if _, ok := u.Asleep(); ok {
				t.Error("there are statistics of nothing")
			}
			for _, step := range []struct{ now, want uint64 }{{10, 10}, {15, 15}, {2, 17}, {8, 23}, {1, 24}} {
				r, err := pack(tc.with(step.now))
				if err == nil {
					r, err = u.Whole(r)
				}
				if err != nil {
					t.Fatal(err)
				}
				if total, memory := tc.read(r); total != step.want || memory != 5 {
					t.Errorf("at %d: %d, memory %d, want %d", step.now, total, memory, step.want)
				}
				r, ok := u.Asleep()
				if !ok {
					t.Fatal("no statistics of a pod that sleeps")
				}
				if total, memory := tc.read(r); total != step.want || memory != 0 {
					t.Errorf("asleep at %d: %d, memory %d, want %d", step.now, total, memory, step.want)
				}
			}
		})
	}
}

func unpack(t *testing.T, r *task.StatsResponse) any {
	t.Helper()
	m, err := typeurl.UnmarshalAny(r.GetStats())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

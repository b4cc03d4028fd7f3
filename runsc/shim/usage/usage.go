// Package usage makes the statistics of a container go on over the sleeps of its pod.
package usage

import (
	"sync"

	stats1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	stats2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/typeurl/v2"
)

// Usage makes the statistics of a container go on over a sleep. A restored sandbox counts its processor time from zero,
// and its cgroup may be a new one. The zero value has seen nothing. Its methods may be called concurrently.
type Usage struct {
	mu   sync.Mutex
	base processor           // what was used in earlier lives
	last processor           // in this life, at the last look
	seen any                 // the last statistics that were answered: *stats1.Metrics or *stats2.Metrics; nil: none
	rest *task.StatsResponse // what is answered in a sleep; nil: not known yet
}

// processor is an amount of processor time, in whichever unit: in all, in the kernel, and outside of it.
type processor struct{ total, kernel, user uint64 }

func (p processor) plus(q processor) processor {
	return processor{p.total + q.total, p.kernel + q.kernel, p.user + q.user}
}

// add returns the amount since the first life, given that of this life.
func (u *Usage) add(now processor) processor {
	if now.total < u.last.total {
		u.base = u.base.plus(u.last)
	}
	u.last = now
	return u.base.plus(now)
}

// Whole returns statistics that contain earlier lives. Statistics of an unknown kind stay as they are.
func (u *Usage) Whole(r *task.StatsResponse) (*task.StatsResponse, error) {
	metrics, err := typeurl.UnmarshalAny(r.GetStats())
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch m := metrics.(type) {
	case *stats1.Metrics:
		if c := m.GetCPU().GetUsage(); c != nil {
			sum := u.add(processor{c.Total, c.Kernel, c.User})
			c.Total, c.Kernel, c.User = sum.total, sum.kernel, sum.user
		}
	case *stats2.Metrics:
		if c := m.GetCPU(); c != nil {
			sum := u.add(processor{c.UsageUsec, c.SystemUsec, c.UserUsec})
			c.UsageUsec, c.SystemUsec, c.UserUsec = sum.total, sum.kernel, sum.user
		}
	default:
		return r, nil
	}
	u.seen, u.rest = metrics, nil
	return pack(metrics)
}

// Asleep returns the statistics of a container that sleeps: the processor time so far, and no memory. ok is false if
// nothing is known. The answer is made once for each sleep, and must not be changed: containerd asks every second.
func (u *Usage) Asleep() (r *task.StatsResponse, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rest != nil {
		return u.rest, true
	}
	switch m := u.seen.(type) {
	case *stats1.Metrics:
		if e := m.GetMemory().GetUsage(); e != nil {
			e.Usage = 0
		}
	case *stats2.Metrics:
		if e := m.GetMemory(); e != nil {
			e.Usage = 0
		}
	default:
		return nil, false
	}
	r, err := pack(u.seen)
	if err != nil {
		return nil, false
	}
	u.rest = r
	return r, true
}

func pack(metrics any) (*task.StatsResponse, error) {
	data, err := typeurl.MarshalAnyToProto(metrics)
	if err != nil {
		return nil, err
	}
	return &task.StatsResponse{Stats: data}, nil
}

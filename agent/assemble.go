package agent

import (
	"context"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/asleep"
	"diapause.dev/agent/budget"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/use"
)

// assemble creates the parts from what open has opened. Each is made after those that it needs.
func (a *Agent) assemble() error {
	a.marks = asleep.NewMarks(a.requests, a.log)
	a.reminders = asleep.NewReminders(asleep.Config{
		Dir: a.cfg.Reminders, Runtime: a.cri, Marks: a.marks, Clustered: a.conn != nil, Logger: a.log,
	})
	a.needs = restore.NewNeeds(a.requests, a.marks, a.reminders)
	a.waker = sleep.NewWaker(a.cri, a.marks)
	a.demand = ready.NewDemand(a.conn != nil)
	readers := snapshots.OpenReaders(a.stores, a.life)
	remover := snapshots.NewRemover(a.stores, readers, a.needs.Needed)
	a.collector = sleep.NewCollector(remover, a.journal, a.waker, a.life, a.log)
	steps := steps{backlog: a.backlog, collector: a.collector, cluster: a.services.Changed}
	a.catalog = snapshots.NewCatalog(remover, a.journal, a.backlog, steps.changed, a.bell.Ring)
	a.replicator = snapshots.NewReplicator(a.catalog, a.unsettled, a.sandboxes, a.bell)
	a.evictor = snapshots.NewEvictor(a.catalog)
	a.restores = restore.New(restore.Config{
		Requests: a.requests, SidecarSocket: a.cfg.SidecarSocket, KeepCPULimits: a.cfg.KeepCPULimits,
		Marks: a.marks, Reminders: a.reminders, VolumeLimit: a.cfg.VolumeLimit, Runtime: a.cri,
		Readers: readers, Lineage: a.lineage, Pace: pace.New(), Facts: a.node.Facts, Cluster: a.services.Restores,
		Life: a.life, Metrics: a.metrics, Logger: a.log,
	})
	a.wakes = restore.NewWakes(a.restores)
	a.newPods = newpods.New(newpods.Config{Runtime: a.cri, Readers: readers, Restores: a.restores})
	a.checkpoints = checkpoint.New(a.checkpointConfig(steps.changed))
	a.lives = lives.New(lives.Config{
		Dir: a.cfg.Past, Runtime: a.cri, Journal: a.journal, Cluster: a.services.Lives, Logger: a.log,
	})
	m := newSleepMetrics(a.metrics.registry)
	a.sleeps = sleep.New(sleep.Config{
		Checkpoints: a.checkpoints, Restores: a.wakes, Runtime: a.cri, Waker: a.waker, Ready: a.demand,
		Cluster: a.services.Sleeps, Metrics: m, Logger: a.log,
	})
	return a.assembleCluster(m)
}

// checkpointConfig returns what checkpoints work with. Changed is called with each step of a request.
func (a *Agent) checkpointConfig(changed func(*journal.Record)) checkpoint.Config {
	waiting := checkpoint.Waiting(a.journal, a.stores.Spool())
	return checkpoint.Config{
		Requests: a.requests, SidecarSocket: a.cfg.SidecarSocket, StoppedDir: a.cfg.StoppedDir, Arena: a.cfg.Arena,
		PrecopyFrom:   a.cfg.PrecopyFrom,
		PrecopyTime:   a.cfg.PrecopyTime,
		Pace:          pace.New(),
		KeepCPULimits: a.cfg.KeepCPULimits,
		Memory:        budget.NewMemory(a.cfg.Memory, a.metrics.CheckpointMemory),
		Disk:          budget.NewDisk(a.stores.SpoolDir(), a.cfg.DiskFloor),
		Replication:   budget.NewReplication(a.cfg.BacklogSize, a.cfg.BacklogCount, waiting),
		VolumeLimit:   a.cfg.VolumeLimit, CaptureTime: a.cfg.CaptureTime, WorkloadSaves: a.cfg.WorkloadSaves,
		Node: a.cfg.Node, Runtime: a.cri, Journal: a.journal, Unsettled: a.unsettled, Sandboxes: a.sandboxes,
		Stores: a.stores, Catalog: a.catalog,
		Replicator: a.replicator, Lineage: a.lineage, Facts: a.node.FactsOf, Load: a.restores.Await,
		Sessions: func(sandbox string) bool {
			last, err := use.Session(a.usedDir(), sandbox)
			return err == nil && !last.IsZero()
		},
		Changed: changed, Sleeps: sleepers{a.waker, a.wakes}, Cluster: a.services.Checkpoints, Life: a.life,
		Metrics: a.metrics, Logger: a.log,
	}
}

// assembleCluster creates the queue of wakes, what keeps pods ready, and the cluster's side. The queue has the
// cluster's policies put pods to sleep, so they are first.
func (a *Agent) assembleCluster(m *sleepMetrics) (err error) {
	c := admission.Config{
		Reserve: a.cfg.WakeReserve, Available: cgroup.Available, Restores: a.wakes, Life: a.life, Metrics: m,
		OnShort: a.demand.Changed, Logger: a.log,
	}
	var policies kube.Policies
	if a.conn != nil {
		policies = a.conn.Policies(kube.IdleNode{
			Sleeps: a.sleeps, Asleep: a.waker.AsleepPod, Ready: a.demand, Meter: a.meter(),
		})
		c.Cluster = policies
	}
	a.admission = admission.New(c)
	a.ready = ready.New(ready.Config{
		Demand: a.demand, Memory: a.cfg.ReadyMemory, Reserve: a.cfg.WakeReserve, Available: cgroup.Available,
		Waiting: a.admission.Waiting, Asleep: a.marks.All, Order: a.cri.OrderSleep, Told: a.sleeps.ReadyChanged,
		Loads: func(ctx context.Context) bool {
			f, err := a.node.Facts(ctx)
			return err == nil && f.Repaired
		},
		Metrics: m, Logger: a.log,
	})
	countSleeps(a.metrics.registry, func() int { return len(a.marks.All()) }, a.admission.Waiting, a.ready.Ready)
	if a.conn == nil {
		return nil
	}
	a.cluster, err = kube.New(a.conn, kube.Node{
		Checkpoints: a.checkpoints, Snapshots: a.catalog, Facts: a.node.Facts, Needs: a.needs, Ended: a.reminders,
		Sleeps: a.sleeps, Waker: a.waker, Waiting: a.admission.Reason, Policies: policies,
	})
	return err
}

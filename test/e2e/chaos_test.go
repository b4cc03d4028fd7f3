package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/storage"
	"diapause.dev/test/bed"
)

// A chaos run is as long as these flags say; "make chaos" makes a long one.
var (
	chaosKills = flag.Int("chaos.kills", 12, "kills in TestChaos")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0: draw one, and print it")
)

// killGap is the longest time between two kills. It leaves some requests the time to succeed.
const killGap = 3 * time.Second

// perKill bounds the time of a chaos run, for each of its kills.
const perKill = 30 * time.Second

// chaosPolicy selects the pods of one kind of lane. They never start cold when there is a snapshot for them.
const chaosPolicy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: %[2]s, namespace: %[1]s, annotations: {diapause.dev/on-restore-failure: Fail%[5]s}}
spec:
  storageConfigName: storage
  selector: {matchLabels: {kind: %[2]s}}
  triggerConfig: {type: manual, postCheckpoint: %[3]s}
  snapshotGroupingRules: {groupByLabelValue: {labels: [agents.x-k8s.io/sandbox-name-hash],
    groupRetentionPolicy: {maxSnapshotCountPerGroup: %[4]d}}}
`

// chaos is a run in which daemons are killed at random while pods are checkpointed, stopped, restored, put to sleep,
// woken and removed.
type chaos struct {
	*world
	over  context.Context // done when the last kill has been made
	count counts
}

// counts are what happened in a run.
type counts struct {
	started, restored, complete, failed, stopped, removed, discarded atomic.Int64
	slept, awake, inherited                                          atomic.Int64
	sidecars                                                         atomic.Int64 // killed
}

func (c *counts) String() string {
	return fmt.Sprintf("%d cold starts, %d restores, %d checkpoints complete (%d of them stopped the pod), %d failed, "+
		"%d pods removed (%d asleep), %d snapshots deleted, %d sleeps, %d pods stayed awake", c.started.Load(),
		c.restored.Load(), c.complete.Load(), c.stopped.Load(), c.failed.Load(), c.removed.Load(), c.inherited.Load(),
		c.discarded.Load(), c.slept.Load(), c.awake.Load())
}

// TestChaos kills agents, controllers, sidecars, containerd, the kubelet and the API server at random instants, while
// pods are checkpointed, stopped, restored, put to sleep by request and by policy, woken and removed. Afterwards no pod
// is paused, every snapshot that is Ready restores, and nothing is left over. At no time does a pod resume an older
// state than that of the newest snapshot that was Complete, or get a sleeper's memory, and no byte of its memory is
// wrong. A pod that is asked to sleep may stay awake. One that slept goes on where it was.
func TestChaos(t *testing.T) {
	c, seed := beginChaos(t), *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to make the same choices again: -chaos.seed=%d -chaos.kills=%d", seed, *chaosKills)
	group, ctx := errgroup.WithContext(c.ctx)
	over, end := context.WithCancel(ctx)
	c.over = over
	for i, k := range kinds {
		l := newLane(c, i, k, rand.New(rand.NewPCG(seed, uint64(i)+1)))
		group.Go(func() error { return l.live(ctx) })
	}
	group.Go(func() error {
		defer end()
		return newKiller(c, rand.New(rand.NewPCG(seed, 0))).run(ctx)
	})
	err := group.Wait()
	t.Log(&c.count)
	c.must(err)
	c.nothingLeft()
}

// beginChaos makes a world whose time is that of the run.
func beginChaos(t *testing.T) *chaos {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Duration(*chaosKills)*perKill+tidyTime)
	t.Cleanup(cancel)
	w := &world{TB: t, cluster: shared, ctx: ctx}
	w.namespace = w.newNamespace("chaos")
	for _, k := range kinds {
		w.apply(fmt.Sprintf(chaosPolicy, w.namespace, k.name, k.post, k.keeps, k.annotations))
	}
	w.apply(strings.Replace(fmt.Sprintf(sleepPolicy, w.namespace), "app: workload", "kind: idle", 1))
	c := &chaos{world: w}
	t.Cleanup(c.keepLogs)
	return c
}

// keepLogs copies the logs of the daemons if the run has failed: they are too long to be printed.
func (c *chaos) keepLogs() {
	if !c.Failed() {
		return
	}
	logs := map[string]string{
		"apiserver": c.Server.Log(), "scheduler": c.Scheduler.Log(), "controllers": c.Controllers.Log(),
	}
	for _, n := range c.Nodes() {
		logs[n.Name+"-containerd"], logs[n.Name+"-kubelet"] = n.Containerd.Log(), n.Kubelet.Log()
	}
	for name, log := range logs {
		path, err := writeLog(c.logsDir(), c.Name()+"-"+name, log)
		c.must(err)
		c.Logf("the log of %s is in %s", name, path)
	}
}

// nothingLeft fails unless all that the run made is gone: objects, stored bytes, processes, mounts.
func (c *chaos) nothingLeft() {
	c.Helper()
	for _, s := range c.snapshots() {
		if err := c.client.Delete(c.ctx, &s); client.IgnoreNotFound(err) != nil { // of a sleep whose pod is gone
			c.Error(err)
		}
	}
	c.eventually("deletion of all PodSnapshots", func() error {
		var l podsnapshotv1.PodSnapshotList
		if err := c.client.List(c.ctx, &l, client.InNamespace(c.namespace)); err != nil || len(l.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d are still there", len(l.Items))
	})
	for _, n := range c.Nodes() {
		c.killAgent(n) // the next one tidies up what those before it were killed at
	}
	c.must(c.rollout(c.ctx))
	ctx, cancel := context.WithTimeout(c.ctx, tidyTime)
	defer cancel()
	for _, n := range c.Nodes() {
		if err := bed.Until(ctx, func() error { return c.noSandboxes(n) }); err != nil {
			c.Errorf("sandboxes of the run on %s: %v", n.Name, err)
		}
	}
	c.storeIsEmpty()
}

// tidyTime bounds how long what is left of the run may take to go. An agent tidies up every ten minutes.
const tidyTime = 12 * time.Minute

// noSandboxes returns an error if anything of a pod with our runtime is still on a node.
func (c *chaos) noSandboxes(n *bed.Node) error {
	for _, name := range []string{"containerd-shim-diapause-v1", "runsc-sandbox", "runsc-gofer", "runsc-checkpointgofer"} {
		if pids, err := n.Exec(c.ctx, "pidof", name); err == nil {
			what, _ := n.Exec(c.ctx, "ps", "-o", "pid,ppid,lstart,args", "-p", strings.Join(strings.Fields(pids), ","))
			return fmt.Errorf("%s is still there:\n%s", name, what)
		}
	}
	for _, dir := range []string{"/run/diapause/requests", "/run/diapause/stopped"} {
		left, err := os.ReadDir(n.Path(dir))
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s holds %s and %d more", dir, left[0].Name(), len(left)-1)
		}
	}
	return nil
}

// storeIsEmpty fails unless the object store has nothing of the run any more, once what killed
// writers left has been swept.
func (c *chaos) storeIsEmpty() {
	c.Helper()
	s := c.store()
	c.eventually("the store is empty", func() error {
		_, err := s.Sweep(c.ctx, storage.SweepOptions{Namespace: c.namespace, Grace: time.Second})
		if err != nil {
			return err
		}
		left := 0
		err = s.Backend().List(c.ctx, c.namespace+"/", func(o storage.ObjectInfo) error {
			left++
			return nil
		})
		if err == nil && left > 0 {
			err = fmt.Errorf("%d objects are left", left)
		}
		return err
	})
}

// killer kills daemons at random.
type killer struct {
	*chaos
	rng    *rand.Rand
	killed map[string]int
}

func newKiller(c *chaos, rng *rand.Rand) *killer {
	return &killer{chaos: c, rng: rng, killed: make(map[string]int)}
}

// victim is what may be killed: kill reports whether there was one.
type victim struct {
	name string
	kill func(context.Context, *bed.Node) (bool, error)
}

// victims are all of them; those that stand here twice are killed twice as often.
func (k *killer) victims() []victim {
	agent := victim{"agent", k.kill((*bed.Node).Agents)}
	controller := victim{"controller", k.kill((*bed.Node).Controllers)}
	sidecar := victim{"sidecar", k.killSidecar}
	containerd := victim{"containerd", restart(func(n *bed.Node) *bed.Daemon { return n.Containerd.Daemon })}
	kubelet := victim{"kubelet", restart(func(n *bed.Node) *bed.Daemon { return n.Kubelet })}
	server := victim{"API server", restart(func(*bed.Node) *bed.Daemon { return k.Server })}
	return []victim{agent, agent, agent, sidecar, sidecar, sidecar, containerd, containerd, server, kubelet, controller}
}

func (k *killer) run(ctx context.Context) error {
	victims, nodes := k.victims(), k.Nodes()
	for done := 0; done < *chaosKills; {
		pause := time.Duration(k.rng.Int64N(int64(killGap)))
		v, n := victims[k.rng.IntN(len(victims))], nodes[k.rng.IntN(len(nodes))]
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		ok, err := v.kill(ctx, n)
		if err := errors.Join(err, k.supervise(ctx)); err != nil {
			return fmt.Errorf("kill %s of %s: %w", v.name, n.Name, err)
		}
		if !ok {
			continue
		}
		k.killed[v.name]++
		if done++; done%20 == 0 {
			k.Logf("%d kills: %v; %v", done, k.killed, &k.count)
		}
	}
	k.Logf("killed: %v", k.killed)
	return nil
}

// supervise starts those of the control plane again that ended for want of an API server: the scheduler ends when what
// it remembers does not fit what it is told afterwards.
func (k *killer) supervise(ctx context.Context) error {
	for _, d := range []*bed.Daemon{k.Scheduler, k.Controllers} {
		select {
		case <-d.Done():
			if err := d.Start(ctx); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// restart kills a daemon by SIGKILL and starts it again.
func restart(which func(*bed.Node) *bed.Daemon) func(context.Context, *bed.Node) (bool, error) {
	return func(ctx context.Context, n *bed.Node) (bool, error) {
		d := which(n)
		d.Kill()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // a run that has failed looks into it
		defer cancel()
		return true, d.Start(ctx)
	}
}

// killByName kills a process that is started again by others.
func (k *killer) killByName(name string) func(context.Context, *bed.Node) (bool, error) {
	return k.kill(func(n *bed.Node, ctx context.Context) ([]string, error) {
		pids, err := n.Exec(ctx, "pidof", name)
		return strings.Fields(pids), err
	})
}

// kill kills processes that are started again by others.
func (k *killer) kill(which func(*bed.Node, context.Context) ([]string, error)) func(context.Context, *bed.Node) (bool,
	error,
) {
	return func(ctx context.Context, n *bed.Node) (bool, error) {
		pids, err := which(n, ctx)
		if err != nil || len(pids) == 0 {
			return false, nil // it is not there now
		}
		_, err = n.Exec(ctx, "kill", append([]string{"-KILL"}, pids...)...)
		return err == nil, nil // or has ended by itself
	}
}

// sidecarTime is how long a sidecar is waited for.
const sidecarTime = 2 * time.Second

// killSidecar kills the sidecars of a node as soon as there are some.
func (k *killer) killSidecar(ctx context.Context, n *bed.Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, sidecarTime)
	defer cancel()
	kill := k.killByName("runsc-checkpointgofer")
	err := bed.Until(ctx, func() error {
		if ok, err := kill(ctx, n); !ok {
			return errors.Join(errNotYet, err)
		}
		k.count.sidecars.Add(1)
		return nil
	})
	return err == nil, nil
}

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

// What BenchmarkIdle looks at is as large as these flags say.
var (
	idleSnapshots = flag.Int("idle.snapshots", 10_000, "snapshots in BenchmarkIdle")
	idlePods      = flag.Int("idle.pods", 200, "pods in BenchmarkIdle")
	idleTime      = flag.Duration("idle.time", 3*time.Minute, "how long BenchmarkIdle measures")
)

const (
	// idleLimit bounds the whole of BenchmarkIdle.
	idleLimit = 2 * time.Hour
	// writers is how many snapshots are made at a time, and starters how many pods.
	writers, starters = 16, 6
	// calmTime is how long the agents are left alone before they are measured.
	calmTime = 30 * time.Second
)

// BenchmarkIdle measures what agents use that have nothing to do, on two nodes full of pods, in a cluster with many
// snapshots. The first is a real one; the others are written as the agent does, with one small file each.
func BenchmarkIdle(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), idleLimit)
	b.Cleanup(cancel)
	w := &world{TB: b, cluster: shared, ctx: ctx, namespace: "idle"} // which ends with the cluster
	w.apply("{apiVersion: v1, kind: Namespace, metadata: {name: idle}}")
	w.eventually("service account", func() error {
		_, err := w.Kubectl(ctx, "--namespace=idle", "get", "serviceaccount", "default")
		return err
	})
	w.apply(fmt.Sprintf(policy, w.namespace))
	s := w.checkpoint(w.run(w.pod("pod-0", command("/bin/workload", "serve", "--mib=1"))))
	b.Log("snapshots...")
	w.must(w.multiply(s.name, *idleSnapshots))
	b.Log("pods...")
	w.must(w.crowd(*idlePods))
	b.Log("calm...")
	select {
	case <-time.After(calmTime):
	case <-ctx.Done():
	}
	w.measureIdle(b)
}

// multiply makes more snapshots, until there are n like the given one.
func (w *world) multiply(name string, n int) error {
	var like podsnapshotv1.PodSnapshot
	err := until(w.ctx, func() error {
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &like)
		if err == nil && !meta.IsStatusConditionTrue(like.Status.Conditions, podsnapshotv1.ConditionStorageReplicated) {
			err = errNotYet
		}
		return err
	})
	if err != nil {
		return err
	}
	store := w.store()
	m, err := store.Manifest(w.ctx, w.key(name))
	if err != nil {
		return err
	}
	staged, err := dir.Open(w.TempDir())
	if err != nil {
		return err
	}
	w.Cleanup(func() { staged.Close() })
	if err := w.stage(staged, m, n); err != nil {
		return err
	}
	if err := w.upload(staged, store.Backend()); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(writers)
	for i := 1; i < n; i++ {
		group.Go(func() error { return w.another(ctx, &like, i) })
	}
	return group.Wait()
}

// nameOf and uidOf are those of the i-th snapshot.
func nameOf(i int) string { return fmt.Sprintf("snapshot-%d", i) }

func uidOf(i int) string { return fmt.Sprintf("%032x", i) }

// stage writes the snapshots from the first to the n-th into a store on the disk. In the cluster's store that would
// take half an hour: a writer lists what is there, and the fake server reads its whole disk for a list.
func (w *world) stage(b storage.Backend, like *storage.Manifest, n int) error {
	store, err := storage.Open(w.ctx, b, storage.Options{})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(writers)
	for i := 1; i < n; i++ {
		group.Go(func() error {
			writer, err := store.NewWriter(ctx, w.key(nameOf(i)), storage.WriterOptions{})
			if err != nil {
				return err
			}
			defer writer.Abort()
			if err := writer.File("file").Chunk([]byte(nameOf(i))); err != nil {
				return err
			}
			is := like.Meta
			is.Key, is.UID = w.key(nameOf(i)), uidOf(i)
			_, err = writer.Commit(ctx, is)
			return err
		})
	}
	return group.Wait()
}

// upload copies packs and manifests of the namespace from one store to another.
func (w *world) upload(from, to storage.Backend) error {
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(writers)
	err := from.List(w.ctx, w.namespace+"/", func(o storage.ObjectInfo) error {
		if !strings.HasPrefix(o.Name, w.namespace+"/packs/") && !strings.HasPrefix(o.Name, w.namespace+"/snapshots/") {
			return nil
		}
		group.Go(func() error {
			data, err := from.ReadAll(ctx, o.Name, 1<<20)
			if err != nil {
				return err
			}
			return to.Create(ctx, o.Name, bytes.NewReader(data), int64(len(data)))
		})
		return ctx.Err()
	})
	return errors.Join(err, group.Wait())
}

// another makes the object of the i-th snapshot, like a given one.
func (w *world) another(ctx context.Context, like *podsnapshotv1.PodSnapshot, i int) error {
	s := like.DeepCopy()
	s.ObjectMeta = metav1.ObjectMeta{
		Namespace: w.namespace, Name: nameOf(i), Labels: like.Labels, Annotations: s.Annotations,
		Finalizers: like.Finalizers,
	}
	s.Annotations[podsnapshotv1.AnnotationSnapshotUID] = uidOf(i)
	if err := w.client.Create(ctx, s); err != nil {
		return err
	}
	before := s.DeepCopy()
	s.Status = like.Status
	return w.client.Status().Patch(ctx, s, client.MergeFrom(before)) // the agent may have written, too
}

// crowd has n pods run, on the nodes in turns.
func (w *world) crowd(n int) error {
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(starters)
	nodes := w.Nodes()
	for i := 1; i < n; i++ {
		group.Go(func() error {
			p := w.pod(fmt.Sprintf("pod-%d", i), on(nodes[i%len(nodes)]), command("/bin/workload", "serve", "--mib=1"))
			_, err := w.tryRun(ctx, p)
			return err
		})
	}
	return group.Wait()
}

// measureIdle reports what the busiest agent and the busiest controller take of a core, and the largest of memory.
func (w *world) measureIdle(b *testing.B) {
	agents, controllers, err := w.agents()
	w.must(err)
	all := append(agents, controllers...)
	var before []float64
	for _, p := range all {
		before = append(before, w.processorTime(p))
	}
	select {
	case <-time.After(*idleTime):
	case <-w.ctx.Done():
	}
	b.ReportMetric(0, "ns/op")
	for i, p := range all {
		name := fmt.Sprintf("agent-%d", i)
		if i >= len(agents) {
			name = fmt.Sprintf("controller-%d", i-len(agents))
		}
		share := 100 * (w.processorTime(p) - before[i]) / idleTime.Seconds()
		status, err := p.NewStatus()
		w.must(err)
		memory := float64(status.VmRSS) / (1 << 20)
		b.Logf("%s: %.2f %% of a core; %.0f MiB, of which %.0f are files; at most it was %.0f", name,
			share, memory, float64(status.RssFile)/(1<<20), float64(status.VmHWM)/(1<<20))
		b.ReportMetric(share, "%-of-a-core-"+name)
		b.ReportMetric(memory, "MiB-"+name)
	}
}

// agents returns the processes of all nodes' agents, and those of the controllers.
func (w *world) agents() (agents, controllers procfs.Procs, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		args, err := p.CmdLine()
		if err != nil || len(args) < 2 || filepath.Base(args[0]) != "diapause-agent" {
			continue
		}
		if args[1] == "controller" {
			controllers = append(controllers, p)
		} else {
			agents = append(agents, p)
		}
	}
	if len(agents) != len(w.Nodes()) || len(controllers) == 0 {
		return nil, nil, fmt.Errorf("there are %d agents on %d nodes, and %d controllers", len(agents), len(w.Nodes()),
			len(controllers))
	}
	return agents, controllers, nil
}

// processorTime returns the seconds that a process has run.
func (w *world) processorTime(p procfs.Proc) float64 {
	w.Helper()
	s, err := p.Stat()
	w.must(err)
	return s.CPUTime()
}

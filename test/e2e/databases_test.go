package e2e

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

// databaseRounds is how often each database is put to sleep, saved at its deletion, and stopped; "make databases" does
// that twenty times.
var databaseRounds = flag.Int("databases.rounds", 1, "rounds of the tests of databases")

// perRound bounds the time of a round.
const perRound = 2 * time.Minute

// databasePolicy saves databases when they are deleted, stops them after a trigger, and never has them start cold.
const databasePolicy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata:
  name: database
  namespace: %s
  annotations: {diapause.dev/on-termination: checkpoint, diapause.dev/on-restore-failure: Fail}
spec:
  storageConfigName: storage
  selector: {matchLabels: {app: database}}
  triggerConfig: {type: manual, postCheckpoint: stop}
  snapshotGroupingRules: {groupByLabelValue: {labels: [agents.x-k8s.io/sandbox-name-hash],
    groupRetentionPolicy: {maxSnapshotCountPerGroup: 3}}}
`

// databaseClaim is a claim and its volume, a directory of a node.
const databaseClaim = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  local: {path: /var/lib/%[1]s}
  claimRef: {namespace: %[1]s, name: claim}
  nodeAffinity: {required: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[2]s]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: %[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: "", volumeName: %[1]s}
`

func TestDatabasePostgreSQL(t *testing.T) { testDatabase(t, "postgres") }

func TestDatabaseMariaDB(t *testing.T) { testDatabase(t, "mariadb") }

func TestDatabaseRedis(t *testing.T) { testDatabase(t, "redis") }

func TestDatabaseSQLite(t *testing.T) { testDatabase(t, "sqlite") }

// testDatabase has a real database, which is written to all the time and has its files in a claim's volume, sleep and
// wake, be saved when it is deleted, and be stopped. Each time it goes on, and has all that it ever acknowledged. Then
// it runs on after a checkpoint. From that it is not restored. An annotation has it restored although its files seem to
// have changed.
func testDatabase(t *testing.T, kind string) {
	t.Parallel()
	d := newDatabase(t, kind)
	p := d.run(d.pod("db", d.shape))
	d.goesOn(p)
	for i := range *databaseRounds {
		d.sleeps("db", fmt.Sprint("at-", time.Now().UnixNano()))
		d.annotate("db", podsnapshotv1.AnnotationWake, fmt.Sprint("at-", time.Now().UnixNano()))
		d.wakes("db", "request")
		d.goesOn(p)
		p = d.again() // it is saved by its deletion
		d.goesOn(p)
		d.checkpoint(p) // which stops it
		p = d.again()
		d.goesOn(p)
		d.sound()
		t.Logf("round %d: restored after a deletion and after a stop, at %v", i+1, d.seen)
	}
	d.leftBehind(p)
	d.broughtBack()
}

// database is a database in a pod of a test's own namespace.
type database struct {
	*world
	kind string
	node *bed.Node
	// What is known of each writer: in the log of the pod, as far as it was read, and in that of the pod before.
	seen, before map[string]span
}

func newDatabase(t *testing.T, kind string) *database {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Duration(*databaseRounds)*perRound)
	t.Cleanup(cancel)
	w := &world{TB: t, cluster: shared, ctx: ctx}
	w.namespace = w.newNamespace("database-" + kind)
	d := &database{world: w, kind: kind, node: w.Node(0)}
	w.must(d.node.Containerd.Import(ctx, sessionsArchive))
	w.must(os.MkdirAll(d.node.Path("/var/lib/"+w.namespace), 0o755))
	w.apply(fmt.Sprintf(databasePolicy, w.namespace))
	w.apply(fmt.Sprintf(databaseClaim, w.namespace, d.node.Name))
	w.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "delete", "pv", w.namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	return d
}

// shape makes a pod that of the database. It is not restarted.
func (d *database) shape(p *corev1.Pod) {
	on(d.node)(p)
	grace(120)(p)
	p.Labels["app"] = "database"
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
	app := &p.Spec.Containers[0]
	app.Image, app.Command = sessionsImage, []string{"/bin/sh", "/prog/database.sh", d.kind}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// again removes the pod and returns its successor, which must have been restored.
func (d *database) again() *ready {
	d.Helper()
	d.remove("db")
	d.before = d.seen
	p := d.run(d.pod("db", d.shape))
	d.wantRestored(p)
	return p
}

func (d *database) wantRestored(p *ready) {
	d.Helper()
	if c := condition(p.Pod, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionTrue {
		d.Fatalf("PodRestored is %q %q %q", c.Status, c.Reason, c.Message)
	}
}

// databaseWriters is how many writers there are (database.py), and some is how many numbers of each are some.
const databaseWriters, some = 3, 30

// span is what the log of a pod has of one writer.
type span struct{ first, last int }

// goesOn waits until the database has acknowledged some more numbers of each writer. In a new pod a writer begins after
// what it had written in the pod before.
func (d *database) goesOn(p *ready) {
	d.Helper()
	began := d.acknowledged(p)
	d.eventually(d.kind+" goes on", func() error {
		d.seen = d.acknowledged(p)
		for name, now := range d.seen {
			if now.first <= d.before[name].last {
				d.Fatalf("writer %s begins at %d, and had written %d", name, now.first, d.before[name].last)
			}
			if was := max(began[name].last, now.first-1); now.last < was+some {
				return fmt.Errorf("writer %s is at %d, was at %d", name, now.last, was)
			}
		}
		if len(d.seen) < databaseWriters {
			return fmt.Errorf("%d writers", len(d.seen))
		}
		return nil
	})
}

// acknowledged reads in the log of the pod what the database has acknowledged. A writer leaves out no number.
func (d *database) acknowledged(p *ready) map[string]span {
	d.Helper()
	log, err := d.Client.CoreV1().Pods(d.namespace).GetLogs(p.Name, new(corev1.PodLogOptions)).DoRaw(d.ctx)
	d.must(err)
	all := make(map[string]span)
	for line := range strings.Lines(string(log)) {
		if !strings.HasPrefix(line, "writer ") {
			continue
		}
		var name string
		var n int
		if _, err := fmt.Sscanf(line, "writer %s %d", &name, &n); err != nil {
			d.Fatalf("%q: %v", line, err)
		}
		s, there := all[name]
		if there && n != s.last+1 {
			d.Fatalf("writer %s: %d follows %d", name, n, s.last)
		}
		if !there {
			s.first = n
		}
		s.last = n
		all[name] = s
	}
	return all
}

// sound has the database check itself. It must have all numbers of each writer, each once.
func (d *database) sound() {
	d.Helper()
	out := d.kubectl("exec", "db", "--", "python3", "/prog/database.py", "check", d.kind)
	for name, s := range d.seen {
		var n int
		_, found, _ := strings.Cut(out, "writer "+name+" ")
		if _, err := fmt.Sscan(found, &n); err != nil || n < s.last {
			d.Errorf("writer %s had written %d, and the database has %q: %v", name, s.last, out, err)
		}
	}
}

// leftBehind checkpoints the database, which then runs on and is deleted. No pod is restored from that checkpoint.
func (d *database) leftBehind(p *ready) {
	d.Helper()
	_, err := d.tool(d.node)("checkpoint", "--name=behind", d.namespace+"/db")
	d.must(err)
	d.goesOn(p)
	d.remove("db")

	d.must(d.client.Create(d.ctx, d.pod("refused", d.shape, from("behind"))))
	for _, word := range []string{"volume /data of container app has changed", "file base/", "modified at"} {
		d.eventually("the refusal", func() error { return d.refusal("refused", word) })
	}
	refused := d.get("refused")
	c := condition(refused, podsnapshotv1.ConditionPodRestored)
	d.Logf("%s: %s", c.Reason, c.Message)
	if c.Reason != podsnapshotv1.ReasonVolumeChanged {
		d.Errorf("the reason is %s", c.Reason)
	}
	d.noSandbox(refused)
	d.remove("refused")
}

// broughtBack has the files of the deleted database be there as a backup brings them back, with other times. Its owner
// knows that they fit, and says so.
func (d *database) broughtBack() {
	d.Helper()
	d.must(filepath.WalkDir(d.node.Path("/var/lib/"+d.namespace), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return os.Chtimes(path, time.Time{}, time.Now())
	}))
	knowing := d.pod("db", d.shape)
	knowing.Annotations[podsnapshotv1.AnnotationVolumeCheck] = podsnapshotv1.VolumeCheckIgnore
	p := d.run(knowing)
	d.wantRestored(p)
	d.before = d.seen
	d.goesOn(p)
	d.sound()
}

// noSandbox fails if a sandbox was made for a pod.
func (d *database) noSandbox(p *corev1.Pod) {
	d.Helper()
	labels := map[string]string{"io.kubernetes.pod.uid": string(p.UID)}
	l, err := d.node.Runtime.ListPodSandbox(d.ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: labels},
	})
	d.must(err)
	for _, s := range l.Items {
		if s.State == cri.PodSandboxState_SANDBOX_READY {
			d.Errorf("pod %s has a sandbox: %+v", p.Name, s)
		}
	}
}

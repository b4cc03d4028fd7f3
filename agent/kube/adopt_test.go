package kube_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/adopt"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/signing"
)

// The old cluster of these tests, and its keys.
const (
	oldCluster   = "0c3a4cf3-3d4e-4b6f-8b1a-000000000001"
	thirdCluster = "0c3a4cf3-3d4e-4b6f-8b1a-000000000003"
)

var (
	oldKey   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	otherKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
)

// foreign has node a make a snapshot of a pod, and then has it be of another cluster: its PodSnapshot is gone.
func (w *world) foreign(trigger string, change ...func(*storage.Manifest)) snapshot.Key {
	w.t.Helper()
	s := w.replicated(w.complete(w.trigger(trigger, "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	m, err := w.stores.get(w.location(), k)
	if err != nil {
		w.t.Fatal(err)
	}
	of := *m
	of.Signer = oldKey
	of.Meta.Origin.Cluster, of.Meta.Origin.NamespaceUID = oldCluster, "former"
	of.Meta.Origin.Group = s.Labels
	of.Meta.Facts = snapshot.Facts{Architecture: "amd64", RunscVersion: "r1"}
	of.Meta.Pod.Sandbox = json.RawMessage(`{"labels": {"app": "web", "io.kubernetes.pod.name": "web"}}`)
	for _, c := range change {
		c(&of)
	}
	if err := w.stores.put(w.location(), &of); err != nil {
		w.t.Fatal(err)
	}
	return k
}

// leave has the old cluster's PodSnapshots vanish, with its node.
func (w *world) leave(r *running) {
	w.t.Helper()
	r.kill()
	for _, s := range w.snapshots() {
		w.vanish(&s)
	}
}

// central returns the world's stores as a controller sees them.
func (w *world) central() central {
	return central{&fakeNode{disk: newDisk(w.stores), boot: context.Background()}}
}

// note writes a note into the world's store.
func (w *world) note(name, content string) {
	w.t.Helper()
	if err := w.central().SetNote(w.t.Context(), w.location(), name, []byte(content)); err != nil {
		w.t.Fatal(err)
	}
}

// signed leaves a sign of life of a cluster's controller.
func (w *world) signed(cluster string, age time.Duration) {
	w.t.Helper()
	w.note(cluster+".alive", fmt.Sprintf(`{"time": %q}`, time.Now().Add(-age).Format(time.RFC3339)))
}

// adopt takes over the old cluster's snapshots.
func (w *world) adopt(edit ...func(*adopt.Config)) (adopt.Report, error) {
	c := adopt.Config{
		Stores: w.central(), Location: w.location(), From: oldCluster, Trusted: []ed25519.PublicKey{oldKey},
	}
	for _, e := range edit {
		e(&c)
	}
	return kube.Adopt(w.t.Context(), api.Config, c)
}

func dry(c *adopt.Config) { c.DryRun = true }

// untouched checks that the cluster has no PodSnapshots, and the store no word of a new owner.
func (w *world) untouched() {
	w.t.Helper()
	if all := w.snapshots(); len(all) > 0 {
		w.t.Errorf("PodSnapshots were made: %+v", all)
	}
	if b, err := w.central().Note(w.t.Context(), w.location(), oldCluster+".taken"); err != nil || b != nil {
		w.t.Errorf("the store was taken over: %s, %v", b, err)
	}
}

// TestAdopt: a new cluster takes over the snapshots of one that is gone. A dry run changes nothing, and while the old
// controller lives all is refused. New pods are restored from the newest; deletion, retention and expiry
// remove the data.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	old := w.start(a)
	w.pod(a, "web")
	oldest, older, newer := w.foreign("t1"), w.foreign("t2"), w.foreign("t3")
	w.leave(old)
	var now clocks
	metrics := prometheus.NewRegistry()
	w.control(now.useToo, func(c *kube.ControllerConfig) { c.Metrics = metrics })

	says := func(r adopt.Report, want ...string) {
		t.Helper()
		var out bytes.Buffer
		if err := r.Write(&out); err != nil {
			t.Fatal(err)
		}
		for _, x := range want {
			if !strings.Contains(out.String(), x) {
				t.Errorf("it does not say %q:\n%s", x, &out)
			}
		}
	}
	r, err := w.adopt(dry, func(c *adopt.Config) { c.From = "" })
	says(r, "3 to adopt, 0 not", "take over with --from="+oldCluster, "this was a dry run")
	if err != nil {
		t.Error(err)
	}
	if _, err = w.adopt(); !errors.Is(err, adopt.ErrAlive) || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("without a sign of life: %v", err)
	}
	w.signed(oldCluster, 15*time.Minute)
	if _, err = w.adopt(func(c *adopt.Config) { c.Ended = true }); !errors.Is(err, adopt.ErrAlive) {
		t.Errorf("while the old controller lives: %v", err)
	}
	r, err = w.adopt(dry)
	says(r, older.Name+": would be adopted, policy policy", "It would be refused now: ")
	if err != nil {
		t.Error(err)
	}
	w.signed(oldCluster, 21*time.Minute)
	if r, err = w.adopt(dry); err != nil || r.Refused != nil {
		t.Errorf("%v, %v", err, r.Refused)
	}
	r, err = w.adopt(func(c *adopt.Config) { c.Trusted = []ed25519.PublicKey{otherKey} })
	says(r, newer.Name+": not adopted: it is signed by "+signing.Fingerprint(oldKey), "0 to adopt, 3 not")
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("without the old cluster's key: %v", err)
	}
	w.untouched()

	for range 2 { // the second time changes nothing
		r, err = w.adopt()
		says(r, newer.Name+": adopted, policy policy")
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []snapshot.Key{older, newer} {
		s := w.replicated(w.snapshot(k.Name))
		if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, "True",
			podsnapshotv1.ReasonAllSnapshotsAvailable); err != nil {
			t.Error(err)
		}
	}
	rb := w.start(b)
	w.deletePod("web")
	for what, pod := range map[string]*corev1.Pod{
		"the policy's": w.pod(b, "next"), "one that names it": w.pod(b, "named", name(newer.Name)),
	} {
		if got, err := choose(t, rb, pod, enough); err != nil || got.Snapshot != newer || got.Store != w.location() {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	gone := func(k snapshot.Key) {
		t.Helper()
		w.gone(w.snapshot(k.Name))
		if w.stored(k.Name) {
			t.Errorf("%s is still stored", k)
		}
	}
	w.delete(w.snapshot(oldest.Name))
	gone(oldest)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		groups := &p.Spec.SnapshotGroupingRules.GroupByLabelValue
		groups.GroupRetentionPolicy = &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: 1}
	})
	gone(older)
	now.set(2*time.Minute, 2*time.Minute) // since the adoption
	w.sees(metrics, func(skew float64) bool { return math.Abs(skew) < 10 })
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: "1min"}
	})
	gone(newer)
}

// TestAdoptedElsewhere: what a third cluster has taken over since, this cluster deletes no longer.
func TestAdoptedElsewhere(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	old := w.start(a)
	w.pod(a, "web")
	k := w.foreign("t1")
	w.leave(old)
	w.control()
	w.signed(oldCluster, time.Hour)
	if _, err := w.adopt(); err != nil {
		t.Fatal(err)
	}
	w.note(oldCluster+".taken", `{"by": "`+thirdCluster+`"}`)
	w.delete(w.snapshot(k.Name))
	w.gone(w.snapshot(k.Name))
	if !w.stored(k.Name) {
		t.Error("what another cluster has taken over is deleted")
	}
}

// TestTakenOver: a controller leaves signs of life. Once another cluster has taken over its snapshots in a store, it
// removes nothing there, and says so.
func TestTakenOver(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	own := clusterID(t)
	taken, _ := w.realStore()
	free, _ := w.realStore()
	const by = `{"by": "` + thirdCluster + `"}`
	if err := taken.SetNote(t.Context(), own+".taken", []byte(by)); err != nil {
		t.Fatal(err)
	}
	w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	w.note(own+".taken", by)
	w.control(func(c *kube.ControllerConfig) { c.OrphanAge = 200 * time.Millisecond })
	w.line("") // what is older than the Lease stays
	for _, s := range []*storage.Store{taken, free} {
		w.store(s, snapshot.Meta{
			Key: snapshot.Key{Namespace: w.ns, Name: "orphan"}, UID: "u", Created: time.Now(),
			Origin: snapshot.Origin{Pod: "web", Node: a, Cluster: own},
		})
	}
	if err := w.eventually(func(ctx context.Context) error {
		b, err := w.central().Note(ctx, w.location(), own+".alive")
		var sign struct{ Time time.Time }
		if err := errors.Join(err, json.Unmarshal(b, &sign)); err != nil {
			return err
		}
		if time.Since(sign.Time).Abs() > limit {
			return fmt.Errorf("the sign of life is of %v", sign.Time)
		}
		return has(ctx, free)
	}); err != nil {
		t.Fatal(err)
	}
	w.nodeEvent("another cluster has adopted")
	w.delete(s)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
		if c == nil || c.Reason != podsnapshotv1.ReasonDeleting || !strings.Contains(c.Message, thirdCluster) {
			return fmt.Errorf("Ready is %+v", c)
		}
		return nil
	})
	if !w.stored(s.Name) || has(t.Context(), taken) == nil {
		t.Error("what another cluster has taken over is removed")
	}
	w.note(own+".taken", `{}`)
	w.gone(s)
}

// TestHostileAdopt: whatever lies in a bucket, only what a trusted key has signed is taken over, once, and nothing that
// the cluster has is changed. What cannot be taken over does not stop the rest.
func TestHostileAdopt(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	old := w.start(a)
	w.pod(a, "web")
	genuine := w.foreign("t1")
	m, err := w.stores.get(w.location(), genuine)
	if err != nil {
		t.Fatal(err)
	}
	w.leave(old)
	w.unattended()
	own := clusterID(t)
	const notMade = "create its PodSnapshot"
	refused := make(map[snapshot.Key]string)
	for name, x := range map[string]struct {
		change func(*storage.Manifest)
		want   string // in the report; empty: it is not in the report
	}{
		"unsigned":  {func(m *storage.Manifest) { m.Signer = nil }, "is not signed"},
		"stranger":  {func(m *storage.Manifest) { m.Signer = otherKey }, "not among the trusted keys"},
		"sleep":     {func(m *storage.Manifest) { m.Meta.Purpose = snapshot.ForSleep }, "is of a sleep"},
		"nobody":    {func(m *storage.Manifest) { m.Meta.Origin.Cluster = "" }, "does not name its cluster"},
		"no-uid":    {func(m *storage.Manifest) { m.Meta.UID = "" }, "has no UID"},
		"namespace": {func(m *storage.Manifest) { m.Meta.Namespace = w.ns + "-none" }, "there is no namespace"},
		"named":     {func(*storage.Manifest) {}, "left as it is"},
		"own":       {func(m *storage.Manifest) { m.Meta.Origin.Cluster = own }, ""},
		"third":     {func(m *storage.Manifest) { m.Meta.Origin.Cluster = thirdCluster }, ""},
		"outside":   {func(m *storage.Manifest) { m.Meta.Origin.Cluster = "../../x" }, ""},
		"huge":      {func(m *storage.Manifest) { m.Meta.Origin.SpecHash = strings.Repeat("x", 1<<20) }, notMade},
		"bad-labels": {func(m *storage.Manifest) {
			m.Meta.Origin.Group = map[string]string{"a b": "\x1b"}
		}, notMade},
	} {
		bad := *m
		bad.Meta.Name = name
		x.change(&bad)
		if err := w.stores.put(w.location(), &bad); err != nil {
			t.Fatal(err)
		}
		if x.want != "" {
			refused[bad.Meta.Key] = x.want
		}
	}
	w.create(&podsnapshotv1.PodSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "named", Annotations: map[string]string{
			podsnapshotv1.AnnotationSnapshotUID: m.Meta.UID,
		}},
		Spec: podsnapshotv1.PodSnapshotSpec{PolicyName: "policy"},
	})
	before := w.snapshots()

	for what, notes := range map[string]map[string]string{
		"alive in the future":  {".alive": `{"time": "2999-01-01T00:00:00Z"}`},
		"a damaged sign":       {".alive": `{`},
		"taken by no cluster":  {".alive": `{"time": "2001-01-01T00:00:00Z"}`, ".taken": `{"by": "../x"}`},
		"taken by another one": {".taken": `{"by": "` + thirdCluster + `"}`},
		"damaged":              {".taken": `[]`},
	} {
		for name, content := range notes {
			w.note(oldCluster+name, content)
		}
		w.signed(thirdCluster, time.Minute)
		if _, err := w.adopt(); err == nil {
			t.Errorf("%s: it takes over", what)
		}
		w.note(oldCluster+".taken", `{}`)
		w.signed(oldCluster, time.Hour)
	}
	for what, edit := range map[string]func(*adopt.Config){
		"no cluster":       func(c *adopt.Config) { c.From = "" },
		"a path":           func(c *adopt.Config) { c.From = "../x" },
		"itself":           func(c *adopt.Config) { c.From = own },
		"no keys":          func(c *adopt.Config) { c.Trusted = nil },
		"a store unnamed":  func(c *adopt.Config) { c.Location += "/x" },
		"the node's store": func(c *adopt.Config) { c.Location = ownStore },
	} {
		if _, err := w.adopt(edit); err == nil {
			t.Errorf("%s: it takes over", what)
		}
	}
	if after := w.snapshots(); len(after) != 1 || after[0].ResourceVersion != before[0].ResourceVersion {
		t.Errorf("before: %+v, after: %+v", before, after)
	}

	r, err := w.adopt()
	if err == nil || !strings.Contains(err.Error(), "2 snapshots were not adopted") {
		t.Errorf("with some that cannot be made: %v", err)
	}
	for _, s := range r.Snapshots {
		switch want, bad := refused[s.Key]; {
		case bad && (s.Done || !strings.Contains(s.Not, want)):
			t.Errorf("%s: want %q: %+v", s.Key, want, s)
		case !bad && (s.Key != genuine || !s.Done):
			t.Errorf("%s: %+v", s.Key, s)
		}
		delete(refused, s.Key)
	}
	if len(refused) > 0 || r.Own != 1 || r.Others != 2 {
		t.Errorf("missing: %v; %d of this cluster, %d of others", refused, r.Own, r.Others)
	}
	if after := w.snapshots(); len(after) != 2 {
		t.Errorf("after: %+v", after)
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil || strings.ContainsRune(out.String(), '\x1b') {
		t.Errorf("%v, %q", err, out.String())
	}
}

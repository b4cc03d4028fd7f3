package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/request"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// maker makes a snapshot of a pod in one of the possible ways, and returns its name once it is Ready.
type maker func(ctx context.Context, p *pairs, pod string, n int) (string, error)

func byTrigger(ctx context.Context, p *pairs, pod string, n int) (string, error) {
	name, _, err := p.sdk.create(ctx, fmt.Sprintf("%s-%d", pod, n), pod)
	return name, err
}

func byAnnotation(ctx context.Context, p *pairs, pod string, n int) (string, error) {
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.w.ns, Name: pod}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, podsnapshotv1.AnnotationCheckpoint, n)
	if err := api.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return "", err
	}
	var name string
	return name, p.w.eventually(func(ctx context.Context) error {
		if err := api.client.Get(ctx, keyOf(o), o); err != nil {
			return err
		}
		s := request.ParseStatus(o)
		if name = s.Snapshot; s.ID != fmt.Sprint(n) || s.State != request.StateComplete {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// byTool is a checkpoint by the node's operator, without a name.
func byTool(ctx context.Context, p *pairs, pod string, _ int) (string, error) {
	return p.checkpoint(ctx, pod, "")
}

// checkpoint makes a checkpoint as the node's operator would.
func (p *pairs) checkpoint(ctx context.Context, pod, name string) (string, error) {
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.w.ns, Name: pod}}
	if err := api.client.Get(ctx, keyOf(o), o); err != nil {
		return "", err
	}
	f, err := p.r.node.Checkpoint(ctx, ctx, checkpoint.Options{Target: string(o.UID), Name: name})
	if err != nil {
		return "", err
	}
	s := p.w.snapshot(f.Manifest.Meta.Key.Name)
	return s.Name, p.w.eventually(func(ctx context.Context) error {
		if err := api.client.Get(ctx, keyOf(s), s); err != nil {
			return err
		}
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable)
	})
}

// byName is a checkpoint by the node's operator, with a name.
func byName(ctx context.Context, p *pairs, pod string, n int) (string, error) {
	return p.checkpoint(ctx, pod, fmt.Sprintf("%s-%d", pod, n))
}

// pairs makes pairs of snapshots.
type pairs struct {
	w   *world
	r   *running
	sdk sdk
}

// make makes two snapshots of one pod, and repeats this, each pair with a group of its own, until both have the same
// creationTimestamp. It returns the group's hash and the second name.
func (p *pairs) make(ctx context.Context, i int, first, second maker) (hash, newest string, err error) {
	for try := 0; ; try++ {
		hash = fmt.Sprintf("%04x%04x", i, try)
		pod := "web-" + hash
		p.w.pod(p.r.name, pod, func(o *corev1.Pod) { o.Labels[podsnapshotv1.LabelSandboxNameHash] = hash })
		older, err := first(ctx, p, pod, 1)
		if err != nil {
			return "", "", err
		}
		if newest, err = second(ctx, p, pod, 2); err != nil {
			return "", "", err
		}
		a, b := p.w.snapshot(older), p.w.snapshot(newest)
		if err := errors.Join(api.client.Get(ctx, keyOf(a), a), api.client.Get(ctx, keyOf(b), b)); err != nil {
			return "", "", err
		}
		if b.CreationTimestamp.Before(&a.CreationTimestamp) {
			return "", "", fmt.Errorf("%s was made after %s and is older", newest, older)
		}
		if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			return hash, newest, nil
		}
	}
}

// TestSameSecond: two snapshots are made in one second, in any of the ways. The second is the one that the SDK lists
// first, that the next pod gets, and that is kept. 50 pairs.
func TestSameSecond(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	p := &pairs{w: w, r: w.start(a), sdk: newSDK(w)}
	w.control()
	ways := [][2]maker{
		{byTrigger, byTrigger},
		{byTrigger, byTrigger},
		{byTrigger, byTool},
		{byTool, byTrigger},
		{byAnnotation, byTrigger},
		{byTool, byTool},
		{byName, byTrigger},
	}
	newest := make([]string, 50)
	hashes := make([]string, len(newest))
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for i := range newest {
		way := ways[i%len(ways)]
		g.Go(func() (err error) {
			hashes[i], newest[i], err = p.make(ctx, i, way[0], way[1])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	listed, chosen, kept := 0, 0, 0
	for i, want := range newest {
		if names, err := p.sdk.list(t.Context(), hashes[i], true); err == nil && len(names) == 2 && names[0] == want {
			listed++
		}
		pod := w.pod(a, "next-"+hashes[i], func(o *corev1.Pod) { o.Labels[podsnapshotv1.LabelSandboxNameHash] = hashes[i] })
		if got, err := choose(t, p.r, pod, enough); err == nil && got.Snapshot.Name == want {
			chosen++
		}
	}
	edit(w, w.policy("policy"), func(o *podsnapshotv1.PodSnapshotPolicy) {
		groups := &o.Spec.SnapshotGroupingRules.GroupByLabelValue
		groups.GroupRetentionPolicy = &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: 1}
	})
	for i, want := range newest {
		var names []string
		if err := w.eventually(func(ctx context.Context) (err error) {
			if names, err = p.sdk.list(ctx, hashes[i], true); err == nil && len(names) != 1 {
				err = fmt.Errorf("%d snapshots of group %s", len(names), hashes[i])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if names[0] == want {
			kept++
		}
	}
	if n := len(newest); listed != n || chosen != n || kept != n {
		t.Errorf("of %d pairs within one second each the second was listed first in %d, chosen in %d, kept in %d", n, listed,
			chosen, kept)
	}
}

// TestNamed: the name of a snapshot may be given, and then has no order. Such a snapshot is not made in the same second
// as another one of its namespace if the order of the two names would be wrong.
func TestNamed(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	p := &pairs{w: w, r: w.start(a), sdk: newSDK(w)}
	w.pod(a, "web")
	var made []string
	for i, name := range []string{"", "m", "", "b", "z", "0", "", "000"} {
		var err error
		if name == "" {
			name, err = byTrigger(t.Context(), p, "web", i)
		} else {
			_, err = p.checkpoint(t.Context(), "web", name)
		}
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, name)
	}
	listed, err := p.sdk.list(t.Context(), "0a0a0a0a", true)
	if slices.Reverse(listed); err != nil || !slices.Equal(made, listed) {
		t.Errorf("made %q, listed %q, %v", made, listed, err)
	}
}

// lag fails all attempts to create the first PodSnapshot that it sees, until it ends.
type lag struct {
	next http.RoundTripper
	over context.Context
	name *atomic.Pointer[string]
}

func (l lag) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/podsnapshots") || l.over.Err() != nil {
		return l.next.RoundTrip(r)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, err
	}
	l.name.CompareAndSwap(nil, &o.Name)
	if *l.name.Load() == o.Name {
		return nil, errors.New("no way, for now")
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return l.next.RoundTrip(r)
}

// TestOrderOfCreation: if a PodSnapshot cannot be created for a while, that of the pod's next checkpoint is still
// created after it.
func TestOrderOfCreation(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	over, end := context.WithCancel(t.Context())
	var first atomic.Pointer[string]
	spooled := 0
	r := w.start(a, func(n *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return lag{next, over, &first} })
		n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
			if s == stepReplicate {
				if spooled++; spooled == 2 {
					end()
				}
			}
			return nil
		}
	})
	w.pod(a, "web")
	p := &pairs{w: w, r: r, sdk: newSDK(w)}
	seen, err := p.sdk.in("podsnapshots").Watch(t.Context(), metav1.ListOptions{ResourceVersion: ""})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	older, newer := w.trigger("t1", "web"), w.trigger("t2", "web")
	want := []string{w.complete(older).Name, w.complete(newer).Name}
	var got []string
	for e := range seen.ResultChan() {
		if e.Type == watch.Added {
			if got = append(got, e.Object.(*unstructured.Unstructured).GetName()); len(got) == len(want) {
				break
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("PodSnapshots were created in the order %q, of checkpoints %q", got, want)
	}
}

// TestClockSetBack: snapshots made after a node's clock was set back are still newer, in the same life of the agent
// and in the next.
func TestClockSetBack(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var back time.Duration
	clock := func(_ *fakeNode, c *kube.Config) { c.Now = func() time.Time { return time.Now().Add(-back) } }
	s := newSDK(w)
	r := w.start(a, clock)
	w.pod(a, "web")
	var made []string
	for i := range 4 {
		if i == 2 {
			r.kill()
			back += 20 * time.Second
			r = w.start(a, clock)
		}
		name, _, err := s.create(t.Context(), fmt.Sprint("t", i), "web")
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, name)
	}
	for i := 1; i < len(made); i++ {
		if made[i] >= made[i-1] {
			t.Errorf("snapshot %d is %s, the one before it %s", i, made[i], made[i-1])
		}
	}
}

// TestClocksDiffer: a pod was restored from a snapshot of another node, whose clock is ahead. A snapshot of this pod
// is still newer.
func TestClocksDiffer(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.Now = func() time.Time { return time.Now().Add(20 * time.Second) }
	})
	rb := w.start(b)
	s := newSDK(w)
	w.pod(a, "web")
	older, _, err := s.create(t.Context(), "t1", "web")
	if err != nil {
		t.Fatal(err)
	}
	w.replicated(w.snapshot(older))
	w.deletePod("web")
	s.restoredFrom(t, rb, w.pod(b, "web"), older)
	newer, _, err := s.create(t.Context(), "t2", "web")
	if err != nil {
		t.Fatal(err)
	}
	if newer >= older {
		t.Errorf("%s was made of a pod restored from %s, and is larger", newer, older)
	}
}

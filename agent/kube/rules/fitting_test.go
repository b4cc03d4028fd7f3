package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

func TestNewestOf(t *testing.T) {
	type snapshots = []podsnapshotv1.PodSnapshot
	edited := func(edit func(*podsnapshotv1.PodSnapshot)) podsnapshotv1.PodSnapshot { return ready("newest", 9, edit) }
	for name, c := range map[string]struct {
		policy podsnapshotv1.PodSnapshotPolicy
		all    snapshots
		want   string // name of the snapshot, or the refusal
	}{
		"none":        {policy("p"), nil, ""},
		"newest":      {policy("p"), snapshots{ready("a", 1), ready("b", 3), ready("c", 2)}, "b"},
		"tie by name": {policy("p"), snapshots{ready("c", 1), ready("a", 1), ready("b", 1)}, "a"},
		"not ready": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Status.Conditions = nil })},
			"a",
		},
		"being deleted": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) {
				s.DeletionTimestamp = &metav1.Time{Time: epoch}
			})},
			"a",
		},
		"another policy": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Spec.PolicyName = "q" })},
			"a",
		},
		"another group": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Labels[hashLabel] = "bbbb" })},
			"a",
		},
		"no group": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Labels = nil })},
			"a",
		},
		"another namespace": {
			policy("p"),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Namespace = "other" })},
			"a",
		},
		"another account": {
			policy("p"),
			snapshots{ready("a", 1), edited(annotate(podsnapshotv1.AnnotationServiceAccount, "x"))},
			"a",
		},
		"another runsc": {
			policy("p"),
			snapshots{ready("a", 1), edited(annotate(podsnapshotv1.AnnotationRunscVersion, "r2"))},
			"a",
		},
		"another architecture": {
			policy("p"),
			snapshots{ready("a", 1), edited(annotate(podsnapshotv1.AnnotationArchitecture, "arm64"))},
			"a",
		},
		"another spec": {
			policy("p"),
			snapshots{ready("a", 1), edited(annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"))},
			"a",
		},
		"without groups": {
			policy("p", ungrouped),
			snapshots{ready("a", 1), edited(func(s *podsnapshotv1.PodSnapshot) { s.Labels[hashLabel] = "bbbb" })},
			"newest",
		},
		"without groups, specs": {
			policy("p", ungrouped),
			snapshots{edited(annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"))},
			"",
		},
		"files of another spec": {
			policy("p"),
			snapshots{ready("a", 1), edited(both(annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"), rootfs))},
			"newest",
		},
		"files without groups": {
			policy("p", ungrouped),
			snapshots{edited(both(annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"), rootfs))},
			"newest",
		},
		"files of another runsc": {
			policy("p"),
			snapshots{ready("a", 1), edited(both(annotate(podsnapshotv1.AnnotationRunscVersion, "r2"), rootfs))},
			"a",
		},
		"only another account": {
			policy("p"),
			snapshots{ready("a", 1, annotate(podsnapshotv1.AnnotationServiceAccount, "x"))},
			`PodSnapshot ns/a does not fit: service account differs ("x" in the snapshot, "sa" here)`,
		},
		"only another runsc": {
			policy("p", ungrouped),
			snapshots{ready("a", 1, annotate(podsnapshotv1.AnnotationRunscVersion, "r2"))},
			`PodSnapshot ns/a does not fit: runsc version differs ("r2" in the snapshot, "r1" here)`,
		},
		"only another spec": {
			policy("p"),
			snapshots{ready("a", 1, annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"))},
			`PodSnapshot ns/a does not fit: the pod's spec differs`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rules.NewPod{Pod: pod(), Facts: facts}.NewestOf(&c.policy, c.all)
			switch {
			case err != nil && (err.Error() != c.want || !rules.Refused(err)):
				t.Errorf("refused: %v; want %q", err, c.want)
			case err == nil && got == nil && c.want != "", got != nil && got.Name != c.want:
				t.Errorf("got %v, want %q", got, c.want)
			}
		})
	}
	changed := pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" })
	p := policy("p")
	_, err := rules.NewPod{Pod: changed, Facts: facts}.NewestOf(&p, snapshots{ready("a", 1)})
	want := `PodSnapshot ns/a does not fit: container app: image differs ("app:1" in the snapshot, "app:2" in the pod)`
	if err == nil || err.Error() != want {
		t.Errorf("refused: %v; want %s", err, want)
	}
	lacking := pod(func(p *corev1.Pod) { delete(p.Labels, hashLabel) })
	if got, err := (rules.NewPod{Pod: lacking, Facts: facts}).NewestOf(&p, snapshots{ready("a", 1)}); got != nil ||
		err != nil {
		t.Errorf("a pod without the group's label got %v, %v", got, err)
	}
}

// rootfs makes a snapshot contain root file systems only.
func rootfs(s *podsnapshotv1.PodSnapshot) {
	annotate(podsnapshotv1.AnnotationScope, string(podsnapshotv1.ScopeRootfsOnly))(s)
}

func both(a, b func(*podsnapshotv1.PodSnapshot)) func(*podsnapshotv1.PodSnapshot) {
	return func(s *podsnapshotv1.PodSnapshot) {
		a(s)
		b(s)
	}
}

func TestNamed(t *testing.T) {
	s := func(edit ...func(*podsnapshotv1.PodSnapshot)) *podsnapshotv1.PodSnapshot {
		s := ready("a", 1, edit...)
		return &s
	}
	start := rules.NewPod{Pod: pod(), Facts: facts}
	for name, c := range map[string]struct {
		snapshot *podsnapshotv1.PodSnapshot
		named    string
		want     string
	}{
		"fits":          {s(), "a", ""},
		"any policy":    {s(func(s *podsnapshotv1.PodSnapshot) { s.Spec.PolicyName = "q" }), "a", ""},
		"any group":     {s(func(s *podsnapshotv1.PodSnapshot) { s.Labels = nil }), "a", ""},
		"own namespace": {s(), "ns/a", ""},
		"missing":       {nil, "a", "there is no PodSnapshot a in namespace ns"},
		"another namespace": {
			nil, "other/a",
			"PodSnapshot other/a is of another namespace: a pod is restored only from snapshots of its own, ns",
		},
		"being deleted": {
			s(func(s *podsnapshotv1.PodSnapshot) { s.DeletionTimestamp = &metav1.Time{Time: epoch} }), "a",
			"PodSnapshot ns/a is being deleted",
		},
		"failed": {
			s(func(s *podsnapshotv1.PodSnapshot) { rules.SetProgress(s, rules.Progress{Failed: "no space"}) }), "a",
			"PodSnapshot ns/a is not Ready: Failed: no space",
		},
		"another account": {
			s(annotate(podsnapshotv1.AnnotationServiceAccount, "x")), "a",
			`PodSnapshot ns/a does not fit: service account differs ("x" in the snapshot, "sa" here)`,
		},
		"several reasons": {
			s(annotate(podsnapshotv1.AnnotationArchitecture, "arm64"), annotate(podsnapshotv1.AnnotationRunscVersion, "r2")),
			"a",
			`PodSnapshot ns/a does not fit: architecture differs ("arm64" in the snapshot, "amd64" here); ` +
				`runsc version differs ("r2" in the snapshot, "r1" here)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := start.Named(c.named, c.snapshot)
			if got := text(err); got != c.want || err != nil && !rules.Refused(err) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	pending := s(func(s *podsnapshotv1.PodSnapshot) {
		s.Status = podsnapshotv1.PodSnapshotStatus{}
		rules.SetProgress(s, rules.Progress{})
	})
	if err := start.Named("a", pending); !errors.Is(err, rules.ErrPending) || rules.Refused(err) {
		t.Errorf("a snapshot that is being made: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// keep returns a policy that keeps n snapshots of a group.
func keep(n int32) podsnapshotv1.PodSnapshotPolicy {
	return policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
		groups := &p.Spec.SnapshotGroupingRules.GroupByLabelValue
		groups.GroupRetentionPolicy = &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: n}
	})
}

// surplus returns the names of the snapshots that go, if all nodes live but node "dead".
func surplus(n int32, all []podsnapshotv1.PodSnapshot) (names []string) {
	p := keep(n)
	for _, s := range rules.Surplus(&p, all, func(node string) bool { return node != "dead" }) {
		names = append(names, s.Name)
	}
	return names
}

func TestSurplus(t *testing.T) {
	other := func(s *podsnapshotv1.PodSnapshot) { s.Labels[hashLabel] = "bbbb" }
	unready := func(s *podsnapshotv1.PodSnapshot) { s.Status.Conditions = nil }
	doubted := annotate(podsnapshotv1.AnnotationConfirmed, "its pod was on another node")
	all := []podsnapshotv1.PodSnapshot{
		ready("a", 5), ready("b", 5), ready("c", 1), ready("d", 2), ready("e", 9, unready), ready("f", 0, other),
		ready("g", 0, unready), ready("h", 9, doubted), ready("i", 0, doubted),
	}
	for n, want := range map[int32]string{0: "", 1: "i c d b", 2: "i c d", 3: "i c", 4: "i", 5: ""} {
		got := surplus(n, all)
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("keeping %d: %q go, want %q", n, got, want)
		}
	}
	if p := policy("p"); rules.Surplus(&p, all, nil) != nil {
		t.Error("a policy without a limit has too many")
	}
}

// TestSurplusOutlived: a snapshot goes only if enough newer ones are kept where they outlive it.
func TestSurplusOutlived(t *testing.T) {
	in := func(p rules.Progress, node string) func(*podsnapshotv1.PodSnapshot) {
		return func(s *podsnapshotv1.PodSnapshot) {
			s.Status = podsnapshotv1.PodSnapshotStatus{}
			rules.SetProgress(s, p)
			s.Annotations[podsnapshotv1.AnnotationOriginNode] = node
		}
	}
	stored := rules.Progress{Spooled: true, Replicated: true, StoredAt: "gs://b/p"}
	own := rules.Progress{Spooled: true, Replicated: true, OwnDisk: true, StoredAt: "dir:/x"}
	for name, c := range map[string]struct {
		keep int32
		all  []func(*podsnapshotv1.PodSnapshot) // a, b, c …, the newest first
		want string
	}{
		"the newest waits for the store": {1, edits(in(rules.Progress{Spooled: true}, "n"), in(stored, "n")), ""},
		"the newest is never stored": {
			1, edits(in(rules.Progress{Spooled: true, NotInStore: "damaged"}, "n"), in(stored, "n")), "",
		},
		"the newest is in its node's store, the other one in a bucket": {1, edits(in(own, "n"), in(stored, "n")), ""},
		"both in stores of their nodes":                                {1, edits(in(own, "n"), in(own, "m")), "b"},
		"the newest in the store of a node that is silent":             {1, edits(in(own, "dead"), in(own, "m")), ""},
		"the next one is": {2, edits(in(own, "n"), in(own, "dead"), in(own, "m")), ""},
		"one more lives": {
			2, edits(in(own, "n"), in(own, "dead"), in(own, "m"), in(own, "n"), in(own, "dead")), "e d",
		},
		"one that waits, older than a stored one": {1, edits(in(stored, "n"), in(rules.Progress{Spooled: true}, "n")), "b"},
		"one that waits between stored ones": {
			1, edits(in(stored, "n"), in(rules.Progress{Spooled: true}, "n"), in(stored, "n")), "c b",
		},
		"one that waits, older than one in its node's store": {
			1, edits(in(own, "n"), in(rules.Progress{Spooled: true}, "m")), "b",
		},
		"several that wait": {
			1, edits(in(rules.Progress{Spooled: true}, "n"), in(rules.Progress{Spooled: true}, "n"), in(stored, "n"),
				in(stored, "n")), "d",
		},
	} {
		var all []podsnapshotv1.PodSnapshot
		for i, edit := range c.all {
			all = append(all, ready(string(rune('a'+i)), 9-i, edit))
		}
		if got := surplus(c.keep, all); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %q go, want %q", name, got, c.want)
		}
	}
}

func edits(e ...func(*podsnapshotv1.PodSnapshot)) []func(*podsnapshotv1.PodSnapshot) { return e }

func TestExpiry(t *testing.T) {
	const timeout = "1d"
	p := policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: timeout}
	})
	s := ready("a", 0)
	if at, _ := rules.Expiry(&p, &s); !at.Equal(epoch.AddDate(0, 0, 1)) {
		t.Errorf("never used: %v", at)
	}
	used := ready("a", 0, func(s *podsnapshotv1.PodSnapshot) {
		s.Status.LastAccessTime = &metav1.Time{Time: epoch.AddDate(0, 0, 5)}
	})
	if at, _ := rules.Expiry(&p, &used); !at.Equal(epoch.AddDate(0, 0, 6).Add(time.Minute)) {
		t.Errorf("used: %v", at)
	}
	short := policy("p", func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: "1min"}
	})
	if at, _ := rules.Expiry(&short, &used); !at.Equal(epoch.AddDate(0, 0, 5).Add(70 * time.Second)) {
		t.Errorf("used, with a short timeout: %v", at)
	}
	kept := policy("p")
	for _, policy := range []*podsnapshotv1.PodSnapshotPolicy{nil, &kept} {
		if at, _ := rules.Expiry(policy, &s); !at.IsZero() {
			t.Errorf("without a timeout: %v", at)
		}
	}
	lost := ready("a", 0)
	rules.SetDataLost(&lost)
	since := time.Now()
	if at, _ := rules.Expiry(&short, &lost); at.Before(since.AddDate(0, 0, 6)) || at.After(since.AddDate(0, 0, 8)) {
		t.Errorf("its data is lost: %v", at)
	}
	making := ready("a", 0, func(s *podsnapshotv1.PodSnapshot) { s.Status = podsnapshotv1.PodSnapshotStatus{} })
	if at, _ := rules.Expiry(&p, &making); !at.IsZero() {
		t.Errorf("while it is made: %v", at)
	}
	rules.SetProgress(&making, rules.Progress{Failed: "x"})
	if at, _ := rules.Expiry(nil, &making); at.IsZero() || at.Before(epoch) {
		t.Errorf("failed: %v", at)
	}
	for i := range making.Status.Conditions { // by a clock that is behind, or by a node that says so
		making.Status.Conditions[i].LastTransitionTime = metav1.NewTime(epoch.AddDate(-1, 0, 0))
	}
	if at, _ := rules.Expiry(nil, &making); !at.Equal(epoch.Add(time.Hour)) {
		t.Errorf("failed before it was made: %v", at)
	}
}

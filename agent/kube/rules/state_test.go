package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// states returns conditions as "Type=Status/Reason".
func states(conditions []metav1.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, " ")
}

func TestProgress(t *testing.T) {
	const (
		awaiting = "Checkpoint=False/AwaitingCheckpoint StorageReplicated=False/AwaitingCheckpoint " +
			"Ready=False/AwaitingCheckpoint"
		spooled    = "Checkpoint=True/Succeeded StorageReplicated=False/AwaitingCheckpoint Ready=True/AllSnapshotsAvailable"
		replicated = "Checkpoint=True/Succeeded StorageReplicated=True/Succeeded Ready=True/AllSnapshotsAvailable"
		failed     = "Checkpoint=False/Failed StorageReplicated=False/Failed Ready=False/Failed"
		local      = "Checkpoint=True/Succeeded StorageReplicated=False/Failed Ready=True/AllSnapshotsAvailable"
		lost       = "Checkpoint=True/Succeeded StorageReplicated=False/Failed Ready=False/Failed"
		undecided  = "Checkpoint=True/Succeeded StorageReplicated=True/Succeeded Ready=False/AwaitingConfirmation"
		doubted    = "Checkpoint=True/Succeeded StorageReplicated=True/Succeeded Ready=False/NotConfirmed"
	)
	begun, done, all := rules.Progress{}, rules.Progress{Spooled: true},
		rules.Progress{Spooled: true, Replicated: true, StoredAt: "dir:/srv"}
	decided := map[string]string{undecided: "", doubted: "its pod was on another node"} // else confirmed
	for name, c := range map[string]struct {
		steps []rules.Progress
		want  string
	}{
		"not confirmed yet": {[]rules.Progress{begun, done, all}, undecided},
		"not confirmed":     {[]rules.Progress{begun, done, all}, doubted},
		"begun":             {[]rules.Progress{begun}, awaiting},
		"spooled":           {[]rules.Progress{begun, done}, spooled},
		"spooled at once":   {[]rules.Progress{done}, spooled},
		"replicated":        {[]rules.Progress{begun, done, all}, replicated},
		"late news":         {[]rules.Progress{all, done, begun}, replicated},
		"failed":            {[]rules.Progress{begun, {Failed: "x"}}, failed},
		"name is taken":     {[]rules.Progress{done, {Spooled: true, NotInStore: "x"}}, local},
		"no more news":      {[]rules.Progress{done, {Spooled: true, NotInStore: "x"}, done, begun}, local},
		"stored after all":  {[]rules.Progress{done, {Spooled: true, NotInStore: "x"}, done, all}, replicated},
		"only copy is gone": {[]rules.Progress{done, {Failed: "x"}}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			says, unconfirmed := decided[c.want]
			if !unconfirmed {
				says = podsnapshotv1.Confirmed
			}
			s := &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", Annotations: map[string]string{podsnapshotv1.AnnotationConfirmed: says},
			}}
			for _, p := range c.steps {
				rules.SetProgress(s, p)
				before := s.DeepCopy()
				if rules.SetProgress(s, p) || states(before.Status.Conditions) != states(s.Status.Conditions) {
					t.Error("the same again is news")
				}
			}
			if got := states(s.Status.Conditions); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if s.Status.StorageStatus != nil && s.Status.StorageStatus.Dir.ObservedPath != "/srv/ns/snapshots/a" {
				t.Errorf("stored at %+v", s.Status.StorageStatus.Dir)
			}
		})
	}
	s := ready("a", 0)
	if got := s.Status.StorageStatus.GCS.ObservedGCSPath; got != "gs://b/p/ns/snapshots/a" {
		t.Errorf("stored at %s", got)
	}
}

func trigger(name string, version string,
	edit ...func(*podsnapshotv1.PodSnapshotManualTrigger),
) podsnapshotv1.PodSnapshotManualTrigger {
	t := podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, ResourceVersion: version,
			CreationTimestamp: metav1.NewTime(epoch), Generation: 1,
		},
		Spec: podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: "web"},
	}
	for _, e := range edit {
		e(&t)
	}
	return t
}

func TestTriggerStates(t *testing.T) {
	tr := trigger("t", "1")
	if rules.Ended(&tr) || rules.Taken(&tr) {
		t.Error("a new trigger")
	}
	rules.Take(&tr, "n1", "u")
	if rules.Ended(&tr) || !rules.Taken(&tr) || states(tr.Status.Conditions) != "Triggered=Unknown/Checkpointing" {
		t.Errorf("taken: %+v", tr.Status)
	}
	done := *tr.DeepCopy()
	rules.Complete(&done, "s", "")
	if !rules.Ended(&done) || rules.Taken(&done) || states(done.Status.Conditions) != "Triggered=True/Complete" ||
		done.Status.SnapshotCreated.Name != "s" {
		t.Errorf("complete: %+v", done.Status)
	}
	if c := done.Status.Conditions[0]; c.LastTransitionTime.IsZero() || !strings.Contains(c.Message, "ns/s") {
		t.Errorf("complete: %+v", c)
	}
	rules.Fail(&tr, "why")
	if !rules.Ended(&tr) || states(tr.Status.Conditions) != "Triggered=False/Failed" ||
		tr.Status.Conditions[0].Message != "why" {
		t.Errorf("failed: %+v", tr.Status)
	}
}

func TestFirst(t *testing.T) {
	type triggers = []podsnapshotv1.PodSnapshotManualTrigger
	take := func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Take(t, "n", "u") }
	end := func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Fail(t, "x") }
	later := func(t *podsnapshotv1.PodSnapshotManualTrigger) {
		t.CreationTimestamp = metav1.NewTime(epoch.AddDate(0, 0, 1))
	}
	other := func(t *podsnapshotv1.PodSnapshotManualTrigger) { t.Spec.TargetPod = "other" }
	for want, all := range map[string]triggers{
		"":  {trigger("b", "1", end), trigger("a", "2", other)},
		"a": {trigger("a", "9", take), trigger("b", "2")},
		"b": {trigger("a", "10"), trigger("b", "9")},
		"c": {trigger("a", "3", later), trigger("b", "4", end), trigger("c", "5")},
	} {
		got := ""
		if f := rules.First(all, "web"); f != nil {
			got = f.Name
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOverlapping(t *testing.T) {
	selector := func(labels map[string]string, e ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: labels, MatchExpressions: e}
	}
	req := func(op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: "app", Operator: op, Values: values}
	}
	web := selector(map[string]string{"app": "web"})
	for i, c := range []struct {
		a, b metav1.LabelSelector
		want bool
	}{
		{web, web, true},
		{web, selector(map[string]string{"app": "db"}), false},
		{web, selector(map[string]string{"tier": "x"}), true},
		{web, selector(nil), true},
		{web, selector(nil, req(metav1.LabelSelectorOpNotIn, "web")), false},
		{web, selector(nil, req(metav1.LabelSelectorOpIn, "web", "db")), true},
		{web, selector(nil, req(metav1.LabelSelectorOpDoesNotExist)), false},
		{web, selector(nil, req(metav1.LabelSelectorOpExists)), true},
		{selector(nil, req(metav1.LabelSelectorOpExists)), selector(nil, req(metav1.LabelSelectorOpDoesNotExist)), false},
		{selector(nil, req(metav1.LabelSelectorOpExists)), selector(nil, req(metav1.LabelSelectorOpNotIn, "a")), true},
		{selector(nil, req(metav1.LabelSelectorOpNotIn, "a")), selector(nil, req(metav1.LabelSelectorOpNotIn, "b")), true},
	} {
		a := policy("a", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.Selector = c.a })
		b := policy("b", func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.Selector = c.b })
		if got := len(rules.Overlapping(&a, []podsnapshotv1.PodSnapshotPolicy{a, b})) == 1; got != c.want {
			t.Errorf("case %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestMessage: what gVisor, containerd and gRPC say when something fails is a sentence for the owner of a pod.
func TestMessage(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, c := range []struct{ text, want string }{
		{"a\xffb", "a?b"},
		{"web: a\x1b[31mred\r\nb", "web: a [31mred b"},
		{
			"checkpoint default/web: rpc error: code = Unknown desc = rpc error: code = Unavailable desc = it is paused",
			"checkpoint default/web: it is paused",
		},
		{
			`failed to create exec "probe" of container ` + id + ": ttrpc: closed: unknown",
			`failed to create exec "probe" of container 0123456789abc: the connection to its shim was closed: unknown`,
		},
		{
			"checkpoint failed: encoding error: *gofer.dentry was deleted\n\ngoroutine 1 [running]:\nmain.main()\n\t",
			"checkpoint failed: encoding error: *gofer.dentry was deleted",
		},
		{
			"restore: cannot open /data/a.log: no such file or directory, map: map[/data/a.log:{} /data/b.log:{}]",
			"restore: cannot open /data/a.log: no such file or directory",
		},
		{
			`state of container a: error reading from server: EOF; resume a: connection error: desc = "transport: ` +
				`Error while dialing: dial unix /run/c.sock: connect: connection refused"`,
			"state of container a: the connection was closed; resume a: " +
				"Error while dialing: dial unix /run/c.sock: connect: connection refused",
		},
		{
			`resume a: connection error: desc = "error reading server preface: connection reset by peer"; resume b: ` +
				"error reading from server: read unix @->/run/c.sock: connection reset by peer",
			"resume a: the connection was closed; resume b: the connection was closed",
		},
		{
			`failed to load MemoryFile 0x37d141fca008 fsID "app:/": failed to register MemoryFile with pages file: ` +
				"load of pages has failed: flipcall connection shutdown broken pipe",
			`failed to load MemoryFile fsID "app:/": failed to register MemoryFile with pages file: ` +
				"load of pages has failed: the sidecar has ended",
		},
	} {
		if got := rules.Message(c.text); got != c.want {
			t.Errorf("%q\ngives %q\nwant  %q", c.text, got, c.want)
		}
		if got := rules.Message(c.want); got != c.want {
			t.Errorf("%q is another a second time: %q", c.want, got)
		}
	}
	for _, long := range []string{strings.Repeat("é", 5000), strings.Repeat("rpc error: code = A desc = b", 100_000)} {
		if got := rules.Message(long); len(got) > 1000 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes", len(got))
		}
	}
}

// TestWarningStays: what a restore may not notice is said by the PodSnapshot and by the trigger. Later progress, which
// no longer says it, does not take it back.
func TestWarningStays(t *testing.T) {
	const warning = "a restore may not notice changes of volume x"
	var s podsnapshotv1.PodSnapshot
	rules.SetProgress(&s, rules.Progress{Warning: warning})
	if got := rules.Warning(&s); got != "" {
		t.Errorf("before it was captured: %q", got)
	}
	for _, p := range []rules.Progress{{Spooled: true, Warning: warning}, {Spooled: true, Replicated: true}} {
		rules.SetProgress(&s, p)
		if got := rules.Warning(&s); got != warning {
			t.Errorf("after %+v: %q", p, got)
		}
	}
	var other podsnapshotv1.PodSnapshot
	rules.SetProgress(&other, rules.Progress{Spooled: true})
	if got := rules.Warning(&other); got != "" {
		t.Errorf("without one: %q", got)
	}
	var trigger podsnapshotv1.PodSnapshotManualTrigger
	rules.Complete(&trigger, "s", warning)
	got := trigger.Status.Conditions[0].Message
	if !rules.Ended(&trigger) || !strings.HasSuffix(got, "was made, but "+warning) {
		t.Errorf("the trigger says %q", got)
	}
}

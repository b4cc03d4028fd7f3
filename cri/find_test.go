package cri

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// pods are ordered newest first, as list orders them.
var pods = []*Pod{
	{
		ID: "aaaa1111", Namespace: "default", Name: "web", Ready: false, Created: time.Unix(9, 0),
		Containers: []Container{{ID: "cccc0009"}},
	},
	{
		ID: "aaaa2222", Namespace: "default", Name: "web", Ready: true, Created: time.Unix(8, 0),
		Containers: []Container{{ID: "cccc0008"}, {ID: "cccc1008"}},
	},
	{ID: "bbbb3333", Namespace: "default", Name: "gone", Created: time.Unix(7, 0)},
	{ID: "bbbb4444", Namespace: "default", Name: "gone", Created: time.Unix(6, 0)},
	{ID: "dddd5555", Namespace: "one", Name: "both", Ready: true, Created: time.Unix(5, 0)},
	{ID: "dddd6666", Namespace: "two", Name: "both", Ready: true, Created: time.Unix(4, 0)},
	{
		ID: "eeee7777", Namespace: "default", Name: "bbbb", Ready: true, Created: time.Unix(3, 0),
		Containers: []Container{{ID: "eeee0000"}},
	},
	{ID: "ffff8888", Namespace: "three", Name: "late", Created: time.Unix(2, 0)},
	{ID: "ffff9999", Namespace: "four", Name: "late", Created: time.Unix(1, 0)},
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		target string
		want   string // id; empty: an error
		err    error
		says   string
	}{
		{target: "web", want: "aaaa2222"},
		{target: "default/web", want: "aaaa2222"},
		{target: "gone", want: "bbbb3333"},
		{target: "both", err: ErrAmbiguous, says: "one/both (id dddd5555), two/both (id dddd6666)"},
		{target: "one/both", want: "dddd5555"},
		{target: "late", err: ErrAmbiguous, says: "three/late"},
		{target: "four/late", want: "ffff9999"},
		{target: "aaaa1111", want: "aaaa1111"},
		{target: "aaaa1", want: "aaaa1111"},
		{target: "aaaa", err: ErrAmbiguous, says: "default/web (id aaaa1111)"},
		{target: "cccc1008", want: "aaaa2222"},
		{target: "cccc1", want: "aaaa2222"},
		{target: "cccc0", err: ErrAmbiguous},
		{target: "bbbb", want: "eeee7777"}, // a name goes before the beginning of an id
		{target: "eeee", want: "eeee7777"}, // pod and container of one pod
		{target: "eee", err: ErrNotFound},
		{target: "EEEE", err: ErrNotFound},
		{target: "default/eeee7777", err: ErrNotFound},
		{target: "nobody", err: ErrNotFound, says: "no pod of this node"},
		{target: "", err: ErrNotFound},
		{target: strings.Repeat("a", 600), err: ErrNotFound},
	} {
		t.Run(tc.target[:min(len(tc.target), 20)], func(t *testing.T) {
			p, err := choose(pods, tc.target)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error %q does not say %q", err, tc.says)
				}
				return
			}
			if p.ID != tc.want {
				t.Errorf("pod %s, want %s", p.ID, tc.want)
			}
		})
	}
}

// TestTaken: a name is taken by a ready pod in the same namespace.
func TestTaken(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string // id; empty: none
	}{
		{[]string{"default/web"}, "aaaa2222"},
		{[]string{"default/new", "one/both"}, "dddd5555"},
		{[]string{"default/gone"}, ""},
		{[]string{"three/both", "web"}, ""},
		{nil, ""},
	} {
		p := taken(pods, tc.names)
		if p == nil && tc.want != "" || p != nil && p.ID != tc.want {
			t.Errorf("%q: %+v, want %q", tc.names, p, tc.want)
		}
	}
}

func FuzzChoose(f *testing.F) {
	for _, s := range []string{"web", "default/web", "aaaa", "", "/", "cccc1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		p, err := choose(pods, target)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrAmbiguous) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}

func TestCheckRuntime(t *testing.T) {
	ours, other := &Pod{Runtime: RuntimeType},
		&Pod{Namespace: "default", Name: "x", Runtime: "io.containerd.runc.v2", Handler: "runc"}
	if err := ours.CheckRuntime(); err != nil {
		t.Error(err)
	}
	err := other.CheckRuntime()
	if !errors.Is(err, ErrOtherRuntime) || !strings.Contains(err.Error(), "io.containerd.runc.v2") ||
		!strings.Contains(err.Error(), "default/x") {
		t.Error(err)
	}
}

// TestLastRun: a sandbox in which nothing has started is none in which the pod has run.
func TestLastRun(t *testing.T) {
	ran, created := []Container{{State: StateCreated}, {State: StateExited}}, []Container{{State: StateCreated}}
	all := []*Pod{
		{ID: "new", UID: "u", Containers: ran},
		{ID: "empty", UID: "u"},
		{ID: "failed", UID: "u", Containers: created},
		{ID: "other", UID: "v", Containers: ran},
		{ID: "ran", UID: "u", Containers: ran},
		{ID: "before", UID: "u", Containers: ran},
	}
	for _, c := range []struct{ uid, except, want string }{
		{"u", "new", "ran"}, {"u", "", "new"}, {"v", "other", ""}, {"w", "", ""},
	} {
		if got := lastRun(all, c.uid, c.except); got != c.want {
			t.Errorf("pod %s apart from %q: %q, want %q", c.uid, c.except, got, c.want)
		}
	}
}

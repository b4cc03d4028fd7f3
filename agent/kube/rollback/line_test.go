package rollback

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestLine: every mark of a line is on all its later states, whoever counts. No mark that was left after a backup is on
// what is counted after the backup was brought back.
func TestLine(t *testing.T) {
	ids := 0
	count := func(l line, last mark, n int) (line, []mark) {
		var marks []mark
		for range n {
			ids++
			l = l.next(last, fmt.Sprint("id", ids))
			last = l.end()
			marks = append(marks, last)
		}
		return l, marks
	}
	on := func(l line, marks []mark, want bool) {
		t.Helper()
		for _, m := range marks {
			if l.has(m) != want {
				t.Errorf("%+v has %+v: %v", l, m, !want)
			}
		}
	}
	l, first := count(line{}, mark{}, 3)
	if len(l.Terms) != 1 || l.Count != 3 {
		t.Errorf("one controller has counted %+v", l)
	}
	backup, second := count(l, mark{}, 4) // another controller
	on(backup, append(first, second...), true)
	later, third := count(backup, second[3], 2)
	later, fourth := count(later, mark{}, 2) // and another one
	on(later, append(third, fourth...), true)

	for name, last := range map[string]mark{"the same controller": fourth[1], "another one": {}} {
		back := backup
		for range 8 { // passes the former count
			on(back, append(first, second...), true)
			on(back, append(third, fourth...), false)
			var after []mark
			back, after = count(back, last, 1)
			last = after[0]
			on(back, after, true)
		}
		if t.Failed() {
			t.Log(name)
		}
	}
	on(line{}, first, false)
	long, _ := count(line{}, mark{}, 1)
	for range 2 * maxTerms {
		long, _ = count(long, mark{}, 1)
	}
	if len(long.Terms) != maxTerms || !long.has(long.end()) {
		t.Errorf("%d terms, %+v", len(long.Terms), long.end())
	}
}

// TestSweepAgain: an administrator's word speaks for marks of before, and for none to come.
func TestSweepAgain(t *testing.T) {
	now := time.Now()
	lost := mark{Term: "lost", Count: 7, Time: now.Add(-time.Hour)}
	for _, c := range []struct {
		again  string
		refuse string // in the error
	}{
		{"", "sweep-again="},
		{now.Add(-2 * time.Hour).Format(time.RFC3339), "sweep-again="},
		{now.Format(time.RFC3339), ""},
		{now.Add(24 * time.Hour).Format(time.RFC3339), "set it to the present time"},
		{"yes", "set it to the present time"},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			podsnapshotv1.AnnotationLine:       `{"count":41,"terms":[{"id":"a","from":1}]}`,
			podsnapshotv1.AnnotationSweepAgain: c.again,
		}}}
		s, err := stateOf(lease, now)
		if err == nil {
			err = s.check(lost, "store x", now)
			if err != nil && !errors.Is(err, ErrRolledBack) {
				t.Errorf("%q: %v", c.again, err)
			}
		}
		if (err != nil) != (c.refuse != "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%q: %v", c.again, err)
		}
	}
	if err := (state{lease: &coordinationv1.Lease{}, again: now}).check(mark{"forged", 1, now.Add(1e6 * time.Hour)}, "x",
		now); err != nil {
		t.Errorf("a mark of the future: %v", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		podsnapshotv1.AnnotationLine: "x",
	}}}
	if _, err := stateOf(lease, now); err == nil {
		t.Error("a damaged line was taken")
	}
}

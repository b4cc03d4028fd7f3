package rollback

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// ErrRolledBack is the kind of error if the cluster was brought back from a backup that is older than what a mark says.
var ErrRolledBack = errors.New("this cluster has no memory of what was here before: it was brought back from an " +
	"older backup, or its Lease was deleted")

// maxTerms bounds the terms of a line. The oldest ones are forgotten: who has a mark of one may have missed anything.
const maxTerms = 200

// line is how far a cluster has come.
type line struct {
	Count int64  `json:"count"`
	Terms []term `json:"terms"` // oldest first
}

// term is a part of a line that one controller has counted without a gap.
type term struct {
	ID   string `json:"id"`
	From int64  `json:"from"` // its first count
}

// mark is a place on a line, kept outside of the cluster. The zero mark is on every line.
type mark struct {
	Term  string    `json:"term"`
	Count int64     `json:"count"`
	Time  time.Time `json:"time"` // when it was left, by the API server's clock
}

// has reports whether a mark is on the line.
func (l line) has(m mark) bool {
	if m.Count == 0 {
		return true
	}
	i := slices.IndexFunc(l.Terms, func(t term) bool { return t.ID == m.Term })
	if i < 0 {
		return false
	}
	end := l.Count
	if i+1 < len(l.Terms) {
		end = l.Terms[i+1].From - 1
	}
	return l.Terms[i].From <= m.Count && m.Count <= end
}

// end returns the mark at the end of the line.
func (l line) end() mark {
	if len(l.Terms) == 0 {
		return mark{}
	}
	return mark{Term: l.Terms[len(l.Terms)-1].ID, Count: l.Count}
}

// next returns the line after one more count. It begins the term with that id unless last, which this process has
// written, is the end of the line.
func (l line) next(last mark, id string) line {
	l.Count++
	if end := l.end(); last.Count == 0 || last.Term != end.Term || last.Count+1 != end.Count {
		l.Terms = append(slices.Clone(l.Terms), term{ID: id, From: l.Count})
	}
	l.Terms = l.Terms[max(0, len(l.Terms)-maxTerms):]
	return l
}

// state is what a Lease says.
type state struct {
	lease *coordinationv1.Lease
	line  line
	again time.Time // marks of before do not count; zero: all count
}

// stateOf reads the annotations of a Lease. Now is by the API server's clock.
func stateOf(lease *coordinationv1.Lease, now time.Time) (s state, err error) {
	s.lease = lease
	if v := lease.Annotations[podsnapshotv1.AnnotationLine]; v != "" {
		if err := json.Unmarshal([]byte(v), &s.line); err != nil {
			return s, fmt.Errorf("annotation %s of Lease %s is damaged, remove it: %w", podsnapshotv1.AnnotationLine,
				client.ObjectKeyFromObject(lease), err)
		}
	}
	v := lease.Annotations[podsnapshotv1.AnnotationSweepAgain]
	if v == "" {
		return s, nil
	}
	if s.again, err = time.Parse(time.RFC3339, v); err != nil || s.again.After(now.Add(maxAhead)) {
		return s, fmt.Errorf("annotation %s of Lease %s is %.80q: set it to the present time, as in %s",
			podsnapshotv1.AnnotationSweepAgain, client.ObjectKeyFromObject(lease), v, now.UTC().Format(time.RFC3339))
	}
	return s, nil
}

// maxAhead is how far in the future an administrator's word may be. Otherwise it would speak for later rollbacks, too.
const maxAhead = 5 * time.Minute

// check returns nil if a mark is on the line, or an administrator has said that it no longer counts. Otherwise the
// error is of kind ErrRolledBack. Where says where the mark is.
func (s state) check(m mark, where string, now time.Time) error {
	forged := m.Time.After(now.Add(maxAhead)) && !s.again.IsZero() // otherwise no word would ever speak for it
	if s.line.has(m) || !m.Time.After(s.again) || forged {
		return nil
	}
	k := client.ObjectKeyFromObject(s.lease)
	return fmt.Errorf("%s: %w: count %d of %s is not in the history of Lease %s. Nothing is removed there because "+
		"its PodSnapshot is missing. To have removed what the cluster no longer knows, run "+
		"kubectl -n %s annotate --overwrite lease %s %s=%s", where, ErrRolledBack, m.Count,
		m.Time.UTC().Format(time.RFC3339), k, k.Namespace, k.Name,
		podsnapshotv1.AnnotationSweepAgain, now.UTC().Format(time.RFC3339))
}

// write writes a line, and why something is not swept, into the state's Lease. It reports whether that changes it.
func (s state) write(l line, why string) (changed bool, err error) {
	data, err := json.Marshal(l)
	if err != nil {
		return false, fmt.Errorf("line: %w", err)
	}
	a := s.lease.Annotations
	changed = a[podsnapshotv1.AnnotationLine] != string(data) || a[podsnapshotv1.AnnotationNotSwept] != why
	metav1.SetMetaDataAnnotation(&s.lease.ObjectMeta, podsnapshotv1.AnnotationLine, string(data))
	if why == "" {
		delete(s.lease.Annotations, podsnapshotv1.AnnotationNotSwept)
	} else {
		metav1.SetMetaDataAnnotation(&s.lease.ObjectMeta, podsnapshotv1.AnnotationNotSwept, why)
	}
	return changed, nil
}

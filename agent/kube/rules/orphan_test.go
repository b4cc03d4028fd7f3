package rules_test

import (
	"testing"
	"time"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// TestOrphans: only a snapshot that is surely this cluster's, and old enough, is an orphan.
func TestOrphans(t *testing.T) {
	now := time.Now()
	rule := rules.Orphans{Cluster: "c", Since: now.Add(-10 * time.Hour), Before: now.Add(-time.Hour)}
	ago := func(h time.Duration) time.Time { return now.Add(-h * time.Hour) }
	for _, tc := range []struct {
		cluster      string
		made, stored time.Time
		orphan       bool
	}{
		{"c", ago(5), ago(4), true},
		{"c", ago(5), now, false}, // its replication took long
		{"c", now, ago(5), false}, // clocks differ
		{"c", ago(11), ago(4), false},
		{"d", ago(5), ago(4), false},
		{"", ago(5), ago(4), false},
	} {
		m := &snapshot.Meta{Created: tc.made, Origin: snapshot.Origin{Cluster: tc.cluster}}
		if why := rule.Spared(m, tc.stored); (why == "") != tc.orphan {
			t.Errorf("%+v: %q", tc, why)
		}
	}
}

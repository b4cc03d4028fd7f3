package adopt

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Report says what was adopted, or would be.
type Report struct {
	From      string // id of the old cluster; empty: of all clusters
	DryRun    bool
	Snapshots []Snapshot // by namespace
	Own       int        // how many snapshots this cluster has made itself
	Others    int        // how many are of other clusters than From
	More      bool       // the store has more than one run looks at
	Refused   error      // why nothing can be adopted now
}

// Snapshot is what was found out about a snapshot.
type Snapshot struct {
	Key     snapshot.Key
	Cluster string // that has made it
	Policy  string // of its PodSnapshot
	Not     string // why it is not adopted
	Done    bool   // it is adopted, by this run or an earlier one

	created time.Time
	object  *podsnapshotv1.PodSnapshot
}

// Write writes the report for people.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	can, namespace, clusters := 0, "", make(map[string]int)
	for _, s := range r.Snapshots {
		if s.Key.Namespace != namespace {
			namespace = s.Key.Namespace
			fmt.Fprintf(&b, "namespace %s\n", namespace)
		}
		if s.Not == "" {
			can++
			clusters[s.Cluster]++
		}
		fmt.Fprintf(&b, "  %s: %s\n", s.Key.Name, r.says(s))
	}
	fmt.Fprintf(&b, "%d to adopt, %d not, %d of this cluster, %d of others\n", can, len(r.Snapshots)-can, r.Own,
		r.Others)
	if r.From == "" {
		for _, c := range most(clusters) {
			fmt.Fprintf(&b, "cluster %s: %d; take over with --from=%s\n", plain(c), clusters[c], plain(c))
		}
	}
	if r.More {
		fmt.Fprintf(&b, "There are more: only %d snapshots were looked at. Name namespaces with --in\n", maxSnapshots)
	}
	if r.Refused != nil {
		fmt.Fprintf(&b, "It would be refused now: %s\n", plain(r.Refused.Error()))
	}
	if r.DryRun {
		b.WriteString("Nothing was changed: this was a dry run. To take over, add --dry-run=false\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) says(s Snapshot) string {
	policy := "policy " + s.Policy
	if s.Policy == podsnapshotv1.NoPolicy {
		policy = "no policy selects its pod: it can be restored by name alone"
	}
	switch {
	case s.Not != "":
		return "not adopted: " + plain(s.Not)
	case s.Done:
		return "adopted, " + policy
	case r.DryRun:
		return "would be adopted, " + policy
	}
	return "not adopted yet"
}

// maxClusters bounds how many clusters a report names.
const maxClusters = 20

// most returns the clusters with the most snapshots.
func most(clusters map[string]int) (out []string) {
	for c := range clusters {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(clusters[b], clusters[a]), cmp.Compare(a, b))
	})
	return out[:min(len(out), maxClusters)]
}

// plain returns a text from a store so that a terminal only prints it.
func plain(s string) string {
	return fmt.Sprintf("%.600s", strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

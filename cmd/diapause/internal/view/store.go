package view

import (
	"fmt"
	"io"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/internal/table"
)

// StoreStats is the result of "store stat".
type StoreStats struct {
	Stores []StoreStat `json:"stores"` // the spool, then the store
}

// StoreStat sums up the spool or the store.
type StoreStat struct {
	Location          string  `json:"location"`
	Identity          string  `json:"identity"` // the same for all nodes
	Spool             bool    `json:"spool"`
	Snapshots         int64   `json:"snapshots"`
	Damaged           int64   `json:"damaged"`
	RawBytes          int64   `json:"raw_bytes"`
	NamedBytes        int64   `json:"named_bytes"` // of the packs' bytes that snapshots name; shared ones count for each
	ManifestBytes     int64   `json:"manifest_bytes"`
	Packs             int64   `json:"packs"`
	PackBytes         int64   `json:"pack_bytes"`
	UnreferencedPacks int64   `json:"unreferenced_packs"`
	UnreferencedBytes int64   `json:"unreferenced_bytes"`
	MissingPacks      int64   `json:"missing_packs"`
	DedupRatio        float64 `json:"dedup_ratio"` // 0: no packs
}

// Add adds one result.
func (s *StoreStats) Add(r *localv1.StoreStats) {
	s.Stores = append(s.Stores, StoreStat{
		Location: r.GetLocation(), Identity: r.GetIdentity(), Spool: r.GetSpool(), Snapshots: r.GetSnapshots(),
		Damaged:  r.GetDamaged(),
		RawBytes: r.GetRawBytes(), NamedBytes: r.GetNamedBytes(), ManifestBytes: r.GetManifestBytes(),
		Packs: r.GetPacks(), PackBytes: r.GetPackBytes(), UnreferencedPacks: r.GetUnreferencedPacks(),
		UnreferencedBytes: r.GetUnreferencedBytes(), MissingPacks: r.GetMissingPacks(), DedupRatio: r.GetDedupRatio(),
	})
}

// Table writes a column for each store.
func (s *StoreStats) Table(w io.Writer) error {
	r := table.New(w)
	row := func(name string, value func(StoreStat) string) {
		cells := []string{name}
		for _, st := range s.Stores {
			cells = append(cells, value(st))
		}
		r.Add(cells...)
	}
	row("", func(st StoreStat) string { return map[bool]string{true: "SPOOL", false: "STORE"}[st.Spool] })
	row("location", func(st StoreStat) string { return st.Location })
	row("identity", func(st StoreStat) string { return st.Identity })
	row("snapshots", func(st StoreStat) string { return withNote(st.Snapshots, st.Damaged, "damaged") })
	row("raw", func(st StoreStat) string { return progress.Size(st.RawBytes) })
	row("stored, each on its own", func(st StoreStat) string { return progress.Size(st.NamedBytes) })
	row("packs", func(st StoreStat) string { return withNote(st.Packs, st.MissingPacks, "missing") })
	row("size of packs", func(st StoreStat) string { return progress.Size(st.PackBytes) })
	row("size of manifests", func(st StoreStat) string { return progress.Size(st.ManifestBytes) })
	row("packs that nothing names", func(st StoreStat) string {
		return fmt.Sprintf("%d, %s", st.UnreferencedPacks, progress.Size(st.UnreferencedBytes))
	})
	row("dedup ratio", func(st StoreStat) string { return fmt.Sprintf("%.2f", st.DedupRatio) })
	return r.Flush()
}

// withNote adds how many of n are bad, if any are.
func withNote(n, bad int64, what string) string {
	if bad == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%d %s)", n, bad, what)
}

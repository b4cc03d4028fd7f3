package view

import (
	"fmt"
	"io"
	"strings"

	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/internal/table"
)

// Table writes everything that is known about a snapshot.
func (s Snapshot) Table(w io.Writer) error {
	for _, part := range []func(io.Writer) error{s.identity, s.sizes, s.facts, s.files, s.timeline} {
		if err := part(w); err != nil {
			return err
		}
	}
	return nil
}

func (s Snapshot) identity(w io.Writer) error {
	r := table.New(w)
	r.Add("snapshot", s.Key())
	r.Add("uid", orDash(s.UID))
	r.Add("created", when(s.Created))
	r.Add("scope", s.Scope)
	r.Add("purpose", s.Purpose)
	r.Add("pod", orDash(s.OriginPod))
	r.Add("node", orDash(s.OriginNode))
	r.Add("containers", orDash(strings.Join(s.Containers, ", ")))
	r.Add("parent", orDash(s.Parent))
	r.Add("signed by", orDash(s.Signer))
	r.Add("restorable from", s.where())
	if s.Problem != "" {
		r.Add("problem", s.Problem)
	}
	return r.Flush()
}

func (s Snapshot) sizes(w io.Writer) error {
	fmt.Fprintln(w, "\nsizes")
	r := table.New(w)
	r.Add("  raw", progress.Size(s.RawBytes))
	r.Add("  stored", progress.Size(s.StoredBytes))
	r.Add("  ratio", fmt.Sprintf("%.2f", s.Ratio))
	r.Add("  chunks", fmt.Sprintf("%d (and %d of zeros only)", s.Chunks, s.ZeroChunks))
	r.Add("  packs", fmt.Sprint(s.Packs))
	r.Add("  beyond the arena", progress.Size(s.Overflow))
	r.Add("  format", fmt.Sprint(s.Format))
	return r.Flush()
}

func (s Snapshot) facts(w io.Writer) error {
	if s.Facts == nil {
		return nil
	}
	fmt.Fprintln(w, "\ncompatibility")
	r := table.New(w)
	r.Add("  architecture", s.Facts.Architecture)
	r.Add("  runsc", s.Facts.RunscVersion)
	r.Add("  runsc sha256", s.Facts.RunscDigest)
	r.Add("  platform", s.Facts.Platform)
	r.Add("  network", s.Facts.Network)
	r.Add("  page size", progress.Size(s.Facts.PageSize))
	for i, line := range wrap(s.Facts.CPUFeatures, 90) {
		r.Add([]string{"  cpu features", ""}[min(i, 1)], line)
	}
	return r.Flush()
}

func (s Snapshot) files(w io.Writer) error {
	if len(s.Files) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nimage files")
	r := table.New(w)
	for _, f := range s.Files {
		r.Add("  "+f.Name, progress.Size(f.Size), fmt.Sprintf("%d chunks", f.Chunks))
	}
	return r.Flush()
}

func (s Snapshot) timeline(w io.Writer) error {
	if len(s.Timeline) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\ntimeline")
	r := table.New(w)
	for _, g := range s.Timeline {
		r.Add("  "+g.Name, fmt.Sprintf("%12s", ms(g.TookMS)))
	}
	r.Add("  whole", fmt.Sprintf("%12s", ms(s.TotalMS)))
	return r.Flush()
}

// wrap joins words with spaces into lines of about width bytes.
func wrap(words []string, width int) []string {
	var out []string
	line := ""
	for _, w := range words {
		if line != "" && len(line)+1+len(w) > width {
			out, line = append(out, line), ""
		}
		line = strings.TrimPrefix(line+" "+w, " ")
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

package view

import (
	"fmt"
	"io"
	"strings"

	"diapause.dev/cmd/diapause/internal/progress"
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
	r := newRows(w)
	r.add("snapshot", s.Key())
	r.add("uid", orDash(s.UID))
	r.add("created", when(s.Created))
	r.add("scope", s.Scope)
	r.add("purpose", s.Purpose)
	r.add("pod", orDash(s.OriginPod))
	r.add("node", orDash(s.OriginNode))
	r.add("containers", orDash(strings.Join(s.Containers, ", ")))
	r.add("parent", orDash(s.Parent))
	r.add("signed by", orDash(s.Signer))
	r.add("restorable from", s.where())
	if s.Problem != "" {
		r.add("problem", s.Problem)
	}
	return r.flush()
}

func (s Snapshot) sizes(w io.Writer) error {
	fmt.Fprintln(w, "\nsizes")
	r := newRows(w)
	r.add("  raw", progress.Size(s.RawBytes))
	r.add("  stored", progress.Size(s.StoredBytes))
	r.add("  ratio", fmt.Sprintf("%.2f", s.Ratio))
	r.add("  chunks", fmt.Sprintf("%d (and %d of zeros only)", s.Chunks, s.ZeroChunks))
	r.add("  packs", fmt.Sprint(s.Packs))
	r.add("  beyond the arena", progress.Size(s.Overflow))
	r.add("  format", fmt.Sprint(s.Format))
	return r.flush()
}

func (s Snapshot) facts(w io.Writer) error {
	if s.Facts == nil {
		return nil
	}
	fmt.Fprintln(w, "\ncompatibility")
	r := newRows(w)
	r.add("  architecture", s.Facts.Architecture)
	r.add("  runsc", s.Facts.RunscVersion)
	r.add("  runsc sha256", s.Facts.RunscDigest)
	r.add("  platform", s.Facts.Platform)
	r.add("  network", s.Facts.Network)
	r.add("  page size", progress.Size(s.Facts.PageSize))
	for i, line := range wrap(s.Facts.CPUFeatures, 90) {
		r.add([]string{"  cpu features", ""}[min(i, 1)], line)
	}
	return r.flush()
}

func (s Snapshot) files(w io.Writer) error {
	if len(s.Files) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nimage files")
	r := newRows(w)
	for _, f := range s.Files {
		r.add("  "+f.Name, progress.Size(f.Size), fmt.Sprintf("%d chunks", f.Chunks))
	}
	return r.flush()
}

func (s Snapshot) timeline(w io.Writer) error {
	if len(s.Timeline) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\ntimeline")
	r := newRows(w)
	for _, g := range s.Timeline {
		r.add("  "+g.Name, fmt.Sprintf("%12s", ms(g.TookMS)))
	}
	r.add("  whole", fmt.Sprintf("%12s", ms(s.TotalMS)))
	return r.flush()
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

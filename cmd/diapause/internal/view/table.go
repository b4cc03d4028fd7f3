package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"diapause.dev/cmd/diapause/internal/progress"
)

// rows aligns cells in columns. It cleans them: they contain names and messages from untrusted sources.
type rows struct{ w *tabwriter.Writer }

func newRows(w io.Writer, header ...string) rows {
	r := rows{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	if len(header) > 0 {
		r.add(header...)
	}
	return r
}

func (r rows) add(cells ...string) {
	clean := make([]string, len(cells))
	for i, c := range cells {
		clean[i] = cell(c)
	}
	fmt.Fprintln(r.w, strings.Join(clean, "\t"))
}

func (r rows) flush() error { return r.w.Flush() }

// cell keeps a value on one line and in one column.
func cell(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return ' '
		}
		return c
	}, progress.Clean(s))
}

func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func ms(v float64) string { return fmt.Sprintf("%.1f ms", v) }

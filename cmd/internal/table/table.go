// Package table prints names and messages from untrusted sources, for all programs.
package table

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Rows aligns cells in columns. It cleans them.
type Rows struct{ w *tabwriter.Writer }

// New returns rows that are written to w, with a header unless it is empty.
func New(w io.Writer, header ...string) Rows {
	r := Rows{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	if len(header) > 0 {
		r.Add(header...)
	}
	return r
}

// Add adds a row.
func (r Rows) Add(cells ...string) {
	clean := make([]string, len(cells))
	for i, c := range cells {
		clean[i] = Cell(c)
	}
	fmt.Fprintln(r.w, strings.Join(clean, "\t"))
}

// Flush writes the rows.
func (r Rows) Flush() error { return r.w.Flush() }

// Cell keeps a value on one line and in one column.
func Cell(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return ' '
		}
		return c
	}, Clean(s))
}

// Clean replaces characters that could move a terminal's cursor or change its state.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/table"
)

// console is what the operator sees: results on out; progress, notes and errors on err.
type console struct {
	out, err io.Writer
	format   view.Format
	printed  bool // a result was printed
}

func (c *console) print(d view.Document) error {
	c.printed = true
	return c.format.Print(c.out, d)
}

// endJSON prints why there is no result, as JSON, if the command line asks for JSON.
func (c *console) endJSON(args []string, err error) error {
	if c.printed || c.format != view.JSON && !wantsJSON(args) {
		return err
	}
	if e := view.Format(view.JSON).Print(c.out, failure(err)); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// wantsJSON reports whether a command line that could not be understood asks for JSON.
func wantsJSON(args []string) bool {
	line := " " + strings.Join(args, " ") + " "
	return slices.ContainsFunc([]string{" -o json ", " -o=json ", " -ojson ", " --output json ", " --output=json "},
		func(s string) bool {
			return strings.Contains(line, s)
		})
}

// report writes every line of an error, prefixed with the tool's name.
func report(w io.Writer, err error) {
	for line := range strings.SplitSeq(table.Clean(err.Error()), "\n") {
		fmt.Fprintln(w, "diapause: "+line)
	}
}

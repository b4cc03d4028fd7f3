// Package progress shows how far a long operation has come: as a bar on a terminal, as plain lines elsewhere. It only
// draws. The caller names the stages and counts.
package progress

import (
	"fmt"
	"io"
	"os"

	"github.com/docker/go-units"
	"golang.org/x/term"
)

// Unit is what done and total count.
type Unit int

// The units of an operation.
const (
	Bytes Unit = iota
	Objects
)

// Display shows one operation. It is not safe for concurrent use.
type Display interface {
	// Update says how far stage has come; total is 0 while it is unknown.
	Update(stage string, done, total int64)
	// Note prints a line that stays.
	Note(line string)
	// Close cleans the terminal up. No method except Close may be called after it.
	Close()
}

// New returns a bar if w is a terminal, and plain lines otherwise.
func New(w io.Writer, unit Unit) Display {
	if Terminal(w) && os.Getenv("TERM") != "dumb" {
		return &bar{w: w, unit: unit}
	}
	return newLines(w, unit)
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// binary are the units of sizes. Each is 1024 times the one before.
var binary = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// Size formats bytes with binary units, e.g. "256.0 MiB". n must not be negative.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return units.CustomSize("%.1f %s", float64(n), 1024, binary)
}

func (u Unit) amount(n int64) string {
	if u == Bytes {
		return Size(n)
	}
	return fmt.Sprintf("%d", n)
}

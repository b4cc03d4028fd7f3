package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// page is what the demo prints: with colour on a terminal, plain elsewhere.
type page struct {
	w      io.Writer
	colour bool
	begin  time.Time
}

// The styles of a terminal.
const (
	bold  = "1"
	dim   = "2"
	green = "1;32"
	cyan  = "36"
)

func newPage(f *os.File) *page {
	colour := term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &page{w: f, colour: colour, begin: time.Now()}
}

func (p *page) style(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// say begins a step.
func (p *page) say(format string, args ...any) {
	at := fmt.Sprintf("%5.1f s", time.Since(p.begin).Seconds())
	fmt.Fprintf(p.w, "%s  %s\n", p.style(dim, at), p.style(bold, fmt.Sprintf(format, args...)))
}

// note adds to a step.
func (p *page) note(format string, args ...any) { fmt.Fprintf(p.w, "         "+format+"\n", args...) }

func (p *page) command(line string) { p.note("%s", p.style(cyan, "$ "+line)) }

func (p *page) output(line string) { p.note("%s", line) }

func (p *page) title(s string) { fmt.Fprintf(p.w, "\n%s\n", p.style(bold, s)) }

func (p *page) row(name, format string, args ...any) {
	fmt.Fprintf(p.w, "  %-46s %s\n", name, fmt.Sprintf(format, args...))
}

func (p *page) last(format string, args ...any) {
	fmt.Fprintf(p.w, "\n%s\n", p.style(green, fmt.Sprintf(format, args...)))
}

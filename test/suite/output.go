package main

import (
	"bytes"
	"io"
	"sync"
)

// output is where all phases print, a line at a time.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// prefixed is a writer for one phase: it puts the phase's name before each line.
type prefixed struct {
	to     *output
	prefix string
	part   []byte // of a line whose end is still to come
}

func (o *output) prefixed(name string) *prefixed { return &prefixed{to: o, prefix: name + " | "} }

func (p *prefixed) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	for {
		line, rest, found := bytes.Cut(p.part, []byte("\n"))
		if !found {
			return len(b), nil
		}
		p.line(line)
		p.part = rest
	}
}

// flush prints the last line, if it has no end.
func (p *prefixed) flush() {
	if len(p.part) > 0 {
		p.line(p.part)
	}
	p.part = nil
}

func (p *prefixed) line(line []byte) {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	_, _ = p.to.w.Write(append([]byte(p.prefix), append(line[:len(line):len(line)], '\n')...))
}

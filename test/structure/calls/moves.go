package calls

import (
	"cmp"
	"fmt"
	"slices"
)

// Moves returns moves of one function, or merges of two files, after which fewer arrows go up. The best come first.
func (p *Package) Moves() []string {
	type found struct {
		what string
		left int
	}
	var all []found
	order := p.graph().order()
	least := p.graph().up(order)
	try := func(what string, moved *Package) {
		if left := moved.upFrom(order); left < least {
			all = append(all, found{what, left})
		}
	}
	for i, u := range p.units {
		if u.name == "" {
			continue
		}
		for to := range p.files {
			if to != u.file && p.touches(i, to) {
				try(fmt.Sprintf("move %s from %s to %s", u.name, p.files[u.file], p.files[to]), p.moved(i, to))
			}
		}
	}
	for from := range p.files {
		for to := range from {
			try(fmt.Sprintf("merge %s and %s", p.files[from], p.files[to]), p.merged(from, to))
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.left, b.left) })
	var lines []string
	for _, f := range all {
		lines = append(lines, fmt.Sprintf("%d: %s", f.left, f.what))
	}
	return lines
}

// upFrom returns how many arrows go up in the order that is found from another one.
func (p *Package) upFrom(order []int) int {
	g := p.graph()
	return g.up(g.improve(slices.Clone(order)))
}

// touches reports whether a unit calls one of a file, or is called from there.
func (p *Package) touches(i, file int) bool {
	for j, u := range p.units {
		if u.file == file && (slices.Contains(u.calls, i) || slices.Contains(p.units[i].calls, j)) {
			return true
		}
	}
	return false
}

// moved returns p with a unit in another file.
func (p *Package) moved(i, file int) *Package {
	q := &Package{Dir: p.Dir, files: p.files, units: slices.Clone(p.units)}
	q.units[i].file = file
	return q
}

// merged returns p with the units of one file in another.
func (p *Package) merged(from, to int) *Package {
	q := &Package{Dir: p.Dir, files: p.files, units: slices.Clone(p.units)}
	for i := range q.units {
		if q.units[i].file == from {
			q.units[i].file = to
		}
	}
	return q
}

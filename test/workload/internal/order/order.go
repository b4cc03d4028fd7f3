// Package order proves that an image of memory is one instant. A writer goes round over many pages
// and writes the number of the round into each, in order; so at any instant all pages before its
// position hold this round and all others the last one. Before each write it looks at what the page
// holds: a page from another instant than the writer's own position is found when its turn comes,
// however fast the writer goes on after a restore.
package order

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"diapause.dev/test/workload/answers"
)

const pageSize = 4096

// The round is written at both ends of a page.
const (
	headAt = 0
	tailAt = pageSize - 8
)

// Region is the pages and the writer's position. It is not safe for concurrent use.
type Region struct {
	pages []byte
	round uint64 // being written, from 1
	next  int    // page to be written next
	found answers.Findings
}

// maxFirst bounds what is spelled out.
const maxFirst = 8

// New maps size bytes, a multiple of the page size, before the first round.
func New(size int) (*Region, error) {
	if size <= 0 || size%pageSize != 0 {
		return nil, fmt.Errorf("region of %d bytes: want a multiple of %d", size, pageSize)
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return &Region{pages: b, round: 1}, nil
}

// Close gives the memory back. Nothing may use it afterwards.
func (r *Region) Close() error { return unix.Munmap(r.pages) }

func (r *Region) len() int { return len(r.pages) / pageSize }

func (r *Region) page(i int) []byte { return r.pages[i*pageSize : (i+1)*pageSize] }

// Step checks and writes the next page.
func (r *Region) Step() {
	p := r.page(r.next)
	if !holds(p, r.round-1) {
		r.note(r.next, r.round-1)
	}
	binary.LittleEndian.PutUint64(p[headAt:], r.round)
	binary.LittleEndian.PutUint64(p[tailAt:], r.round)
	r.found.Writes++
	if r.next++; r.next == r.len() {
		r.next, r.round = 0, r.round+1
	}
}

func (r *Region) note(i int, want uint64) {
	r.found.Bad++
	if len(r.found.First) < maxFirst {
		r.found.First = append(r.found.First, mismatch(r.page(i), i, want))
	}
}

func holds(p []byte, want uint64) bool {
	return binary.LittleEndian.Uint64(p[headAt:]) == want && binary.LittleEndian.Uint64(p[tailAt:]) == want
}

func mismatch(p []byte, i int, want uint64) string {
	return fmt.Sprintf("page %d: rounds %d and %d, want %d", i,
		binary.LittleEndian.Uint64(p[headAt:]), binary.LittleEndian.Uint64(p[tailAt:]), want)
}

// Verify looks at every page at the writer's present position.
func (r *Region) Verify() answers.Order {
	v := answers.Order{Pages: r.len(), Round: r.round, Next: r.next, Found: r.found}
	for i := range r.len() {
		want := r.round
		if i >= r.next {
			want--
		}
		if holds(r.page(i), want) {
			continue
		}
		v.Bad++
		if len(v.Now) < maxFirst {
			v.Now = append(v.Now, mismatch(r.page(i), i, want))
		}
	}
	v.OK = v.Bad == 0 && v.Found.Bad == 0
	return v
}

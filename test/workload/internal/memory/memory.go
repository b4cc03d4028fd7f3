// Package memory fills memory from a seed and tells whether each page of it is still what it was:
// a page carries its index, how often it was written, and a checksum, and the number of its writes
// is kept apart from it, so that lost, swapped, changed and stale pages all show.
package memory

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"

	"diapause.dev/test/workload/answers"
)

// PageSize is the unit of filling and checking, in bytes.
const PageSize = 4096

// The layout of a page: a header, words that repeat, and random bytes at the end.
const (
	indexAt  = 0
	writesAt = 8
	sumAt    = 16
	wordsAt  = 24
)

// Content says what fills the pages.
type Content struct {
	Seed uint64 // memory of another seed has other words and other random bytes
	// Random is how many bytes at the end of each page are random, a multiple of 8: they cannot be compressed.
	Random int
}

// Half is the Random of pages that are half random.
const Half = PageSize / 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Memory is filled memory. Its methods may be called from any goroutine.
type Memory struct {
	content Content

	mu     sync.RWMutex // guards data and writes, page by page
	data   []byte
	writes []uint32 // how often each page was written
}

// maxProblems bounds what a check spells out.
const maxProblems = 8

// New maps and fills size bytes, a multiple of PageSize.
func New(size int, c Content) (*Memory, error) {
	if size <= 0 || size%PageSize != 0 {
		return nil, fmt.Errorf("memory of %d bytes: want a multiple of %d", size, PageSize)
	}
	if c.Random < 0 || c.Random > PageSize-wordsAt || c.Random%8 != 0 {
		return nil, fmt.Errorf("%d random bytes in a page: want a multiple of 8, at most %d", c.Random, PageSize-wordsAt)
	}
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	m := &Memory{content: c, data: data, writes: make([]uint32, size/PageSize)}
	for i := range m.writes {
		m.Write(i)
	}
	return m, nil
}

// Close gives the memory back. Nothing may use it afterwards.
func (m *Memory) Close() error { return unix.Munmap(m.data) }

// Pages returns how many pages there are.
func (m *Memory) Pages() int { return len(m.writes) }

// Write fills page i anew, with other bytes than before.
func (m *Memory) Write(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[i]++
	m.content.fill(m.page(i), uint64(i), m.writes[i])
}

func (m *Memory) page(i int) []byte { return m.data[i*PageSize : (i+1)*PageSize] }

func (c Content) fill(p []byte, index uint64, writes uint32) {
	binary.LittleEndian.PutUint64(p[indexAt:], index)
	binary.LittleEndian.PutUint64(p[writesAt:], uint64(writes))
	word, randomAt := c.Seed^index>>4, PageSize-c.Random
	for at := wordsAt; at < randomAt; at += 8 {
		binary.LittleEndian.PutUint64(p[at:], word)
	}
	r := rand.NewPCG(c.Seed^index, uint64(writes))
	for at := randomAt; at < PageSize; at += 8 {
		binary.LittleEndian.PutUint64(p[at:], r.Uint64())
	}
	binary.LittleEndian.PutUint64(p[sumAt:], uint64(sum(p)))
}

// sum covers the page but for the place where the sum itself is.
func sum(p []byte) uint32 {
	return crc32.Update(crc32.Checksum(p[:sumAt], castagnoli), castagnoli, p[wordsAt:])
}

// Verify checks every page. Writers may go on; no page is checked while it is written.
func (m *Memory) Verify() answers.Memory {
	r := answers.Memory{Pages: m.Pages()}
	for i := range m.writes {
		if err := m.verifyPage(i); err != nil {
			r.Bad++
			if len(r.Problems) < maxProblems {
				r.Problems = append(r.Problems, err.Error())
			}
		}
	}
	r.OK = r.Bad == 0
	return r
}

func (m *Memory) verifyPage(i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.page(i)
	index, writes := binary.LittleEndian.Uint64(p[indexAt:]), binary.LittleEndian.Uint64(p[writesAt:])
	switch {
	case binary.LittleEndian.Uint64(p[sumAt:]) != uint64(sum(p)):
		return fmt.Errorf("page %d: checksum mismatch", i)
	case index != uint64(i):
		return fmt.Errorf("page %d: holds page %d", i, index)
	case writes != uint64(m.writes[i]):
		return fmt.Errorf("page %d: is its write %d, want %d", i, writes, m.writes[i])
	}
	return nil
}

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"diapause.dev/runsc"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	memoryName = "/memfd:runsc-memory" // how the sentry names its memory file
	entrySize  = 8                     // of pagemap, in bytes
	softDirty  = 55                    // the bit of an entry (Documentation/admin-guide/mm/pagemap.rst)
)

// errUnsupported is the error on a kernel without soft-dirty bits.
var errUnsupported = errors.New("this kernel has no soft-dirty bits: it needs CONFIG_MEM_SOFT_DIRTY")

// supported returns an error unless a page that this process has written has a bit.
func supported() error {
	b, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(b)
	copy(b, "written")
	all, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	self, err := all.Self()
	if err != nil {
		return err
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return err
	}
	bits := make(map[int64]bool)
	for _, m := range maps {
		if m.Pathname == "" {
			if err := addBits(bits, self.PID, m); err != nil {
				return err
			}
		}
	}
	if len(bits) == 0 {
		return errUnsupported
	}
	return nil
}

// mappings calls f for each mapping of a sandbox's memory file in any process.
func mappings(f func(pid int, m *procfs.ProcMap) error) error {
	all, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	for _, p := range all {
		maps, err := p.ProcMaps()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return fmt.Errorf("mappings of process %d: %w", p.PID, err)
		}
		for _, m := range maps {
			if !strings.HasPrefix(m.Pathname, memoryName) {
				continue
			}
			if err := f(p.PID, m); err != nil {
				return fmt.Errorf("process %d: %w", p.PID, err)
			}
		}
	}
	return nil
}

// clearBits clears the bits of all processes that map the memory file, and returns how many these are.
func clearBits() (processes int, err error) {
	cleared := make(map[int]bool)
	err = mappings(func(pid int, _ *procfs.ProcMap) error {
		if cleared[pid] {
			return nil
		}
		cleared[pid] = true
		return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("4"), 0)
	})
	return len(cleared), err
}

// readBits returns the pages of the memory file, by their numbers in it, of which any mapping has a bit.
func readBits() (bits map[int64]bool, err error) {
	bits = make(map[int64]bool)
	return bits, mappings(func(pid int, m *procfs.ProcMap) error { return addBits(bits, pid, m) })
}

// addBits adds the pages of a mapping that have a bit.
func addBits(bits map[int64]bool, pid int, m *procfs.ProcMap) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	const atOnce = 1 << 16 // entries: a mapping of the sentry may have a terabyte of address space
	buf := make([]byte, atOnce*entrySize)
	first := int64(m.StartAddr) / pageSize
	for done, all := int64(0), int64(m.EndAddr)/pageSize-first; done < all; {
		part := buf[:min(atOnce, all-done)*entrySize]
		if _, err := f.ReadAt(part, (first+done)*entrySize); err != nil {
			return fmt.Errorf("pagemap: %w", err)
		}
		for i := range len(part) / entrySize {
			if binary.LittleEndian.Uint64(part[i*entrySize:])>>softDirty&1 == 1 {
				bits[m.Offset/pageSize+done+int64(i)] = true
			}
		}
		done += int64(len(part) / entrySize)
	}
	return nil
}

// markedPages returns the pages of the memory file that the sandbox has written, by their numbers in it, for each way.
func markedPages() (pages [byChild + 1][]int64, err error) {
	f, err := memoryFile()
	if err != nil {
		return pages, err
	}
	defer f.Close()
	page := make([]byte, len(magic)+1)
	for at := int64(0); ; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // that was the last data
			return pages, nil
		}
		if err != nil {
			return pages, err
		}
		if at, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE); err != nil {
			return pages, err
		}
		for offset := start; offset < at; offset += pageSize {
			if _, err := f.ReadAt(page, offset); err != nil {
				return pages, err
			}
			if way := int(page[len(magic)]); bytes.HasPrefix(page, []byte(magic)) && way < len(pages) {
				pages[way] = append(pages[way], offset/pageSize)
			}
		}
	}
}

// memoryFile opens the memory file of the sandbox.
func memoryFile() (f *os.File, err error) {
	err = mappings(func(pid int, _ *procfs.ProcMap) error {
		if f == nil {
			f, _ = runsc.MemoryFile(pid) // it fails for a stub, which has the mapping, and not the file
		}
		return nil
	})
	if err == nil && f == nil {
		err = errors.New("no process has the memory file of the sandbox open")
	}
	return f, err
}

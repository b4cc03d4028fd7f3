package capture

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// maxSmall bounds the size in bytes of each image file except pages.img. They usually have 0.2 to 0.5 MB, and
// grow with the number of tasks and files. A multitar.img has at least 512 bytes for each file.
const maxSmall = 512 << 20

// smallFile is an image file that is kept whole in memory. It implements stateio.AsyncWriter; a
// write is done when AddWrite returns.
type smallFile struct {
	capture *Capture
	name    string
	sources sources
	data    []byte
	done    []stateio.Completion
	final   atomic.Bool
}

func newSmallFile(c *Capture, name string) *smallFile {
	return &smallFile{capture: c, name: name, data: make([]byte, 0, 1<<20)}
}

func (f *smallFile) finalized() bool { return f.final.Load() }

// Close implements stateio.AsyncWriter.Close.
func (f *smallFile) Close() error {
	f.sources.close()
	return nil
}

// MaxWriteBytes implements stateio.AsyncWriter.MaxWriteBytes.
func (f *smallFile) MaxWriteBytes() uint64 { return maxWrite }

// MaxRanges implements stateio.AsyncWriter.MaxRanges.
func (f *smallFile) MaxRanges() int { return 1 }

// MaxParallel implements stateio.AsyncWriter.MaxParallel.
func (f *smallFile) MaxParallel() int { return maxWrites }

// NeedRegisterSourceFD implements stateio.AsyncWriter.NeedRegisterSourceFD.
func (f *smallFile) NeedRegisterSourceFD() bool { return true }

// RegisterSourceFD implements stateio.AsyncWriter.RegisterSourceFD.
func (f *smallFile) RegisterSourceFD(fd int32, _ uint64,
	_ []stateio.ClientFileRangeSetting,
) (stateio.SourceFile, error) {
	_, own, err := f.sources.add(fd)
	if err != nil {
		return nil, err
	}
	return own, nil
}

// AddWrite implements stateio.AsyncWriter.AddWrite.
func (f *smallFile) AddWrite(id int, sf stateio.SourceFile, fr memmap.FileRange, _ []byte) {
	f.add(id, sf.(int), []memmap.FileRange{fr})
}

// AddWritev implements stateio.AsyncWriter.AddWritev.
func (f *smallFile) AddWritev(id int, _ uint64, sf stateio.SourceFile, frs []memmap.FileRange, _ []unix.Iovec) {
	f.add(id, sf.(int), frs)
}

func (f *smallFile) add(id, fd int, frs []memmap.FileRange) {
	c := stateio.Completion{ID: id}
	for _, fr := range frs {
		at, n := len(f.data), int(fr.Length())
		if at+n > maxSmall {
			c.Err = unix.EFBIG
			break
		}
		f.data = append(f.data, make([]byte, n)...)
		if c.Err = readFull(fd, f.data[at:], int64(fr.Start)); c.Err != nil {
			break
		}
		c.N += uint64(n)
	}
	f.done = append(f.done, c)
}

// Wait implements stateio.AsyncWriter.Wait.
func (f *smallFile) Wait(cs []stateio.Completion, _ int) ([]stateio.Completion, error) {
	cs = append(cs, f.done...)
	f.done = f.done[:0]
	return cs, nil
}

// Reserve implements stateio.AsyncWriter.Reserve.
func (f *smallFile) Reserve(uint64) {}

// Finalize implements stateio.AsyncWriter.Finalize.
func (f *smallFile) Finalize() error {
	f.final.Store(true)
	f.capture.finished()
	return nil
}

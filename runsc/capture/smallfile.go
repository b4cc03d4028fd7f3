package capture

import (
	"fmt"
	"sync/atomic"

	"diapause.dev/runsc/sidecar"
)

// maxSmall bounds the size in bytes of each image file except pages.img. They usually have 0.2 to 0.5 MB, and
// grow with the number of tasks and files. A multitar.img has at least 512 bytes for each file.
const maxSmall = 512 << 20

// smallFile is an image file that is kept whole in memory. A write is done, and answered, when write returns.
type smallFile struct {
	capture *Capture
	answer  func(id, n uint64) // answers a write of n bytes
	memory  memoryFiles
	data    []byte
	final   atomic.Bool
}

func newSmallFile(c *Capture, answer func(id, n uint64)) *smallFile {
	return &smallFile{capture: c, answer: answer, data: make([]byte, 0, 1<<20)}
}

func (f *smallFile) finalized() bool { return f.final.Load() }

func (f *smallFile) close() { f.memory.close() }

func (f *smallFile) register(m *sidecar.File, size uint64) error {
	_, _, err := f.memory.add(m, size)
	return err
}

func (f *smallFile) write(m *sidecar.Message) error {
	if err := f.memory.check(m); err != nil {
		return err
	}
	n := m.Total()
	if uint64(len(f.data))+n > maxSmall {
		return fmt.Errorf("image file of more than %d bytes", maxSmall)
	}
	if err := f.grow(len(f.data) + int(n)); err != nil {
		return err
	}
	for _, r := range m.Ranges {
		at := len(f.data)
		f.data = f.data[:at+int(r.Length())]
		if err := readFull(f.memory.fd(int(m.Dest)), f.data[at:], int64(r.Start)); err != nil {
			return err
		}
	}
	f.answer(m.ID, n)
	return nil
}

// grow makes room for size bytes in all.
func (f *smallFile) grow(size int) error {
	if size <= cap(f.data) {
		return nil
	}
	room := min(max(size, 2*cap(f.data)), maxSmall)
	if err := f.capture.take(int64(room - cap(f.data))); err != nil {
		return err
	}
	f.data = append(make([]byte, 0, room), f.data...)
	return nil
}

func (f *smallFile) finish() error {
	f.final.Store(true)
	f.capture.finished()
	return nil
}

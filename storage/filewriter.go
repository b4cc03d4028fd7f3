package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"diapause.dev/storage/format"
)

// FileWriter appends chunks to one image file of a snapshot.
type FileWriter struct {
	queue  *queue
	ahead  *ahead
	name   string
	size   int64
	chunks []Chunk
	prints [][format.PrintSize]byte // of the chunks, if they are taken
}

// Expect makes room for this many more chunks, if the caller knows how many will come. Appending them then takes less
// memory. If a snapshot may not have so many, the error is ErrTooManyChunks.
func (f *FileWriter) Expect(chunks int) error {
	f.queue.mu.Lock()
	defer f.queue.mu.Unlock()
	if chunks > MaxChunks-len(f.chunks) {
		return f.queue.target.wrap(fmt.Errorf("%w: %d, at most %d allowed", ErrTooManyChunks, len(f.chunks)+chunks,
			MaxChunks))
	}
	f.chunks = slices.Grow(f.chunks, chunks)
	if f.queue.printed {
		f.prints = slices.Grow(f.prints, chunks)
	}
	return nil
}

// Chunk appends raw, at most MaxChunk bytes, to the file. It only queues raw and does not wait for the work, so raw
// must not change until Commit or Abort has returned. An empty raw adds no chunk. If the writer has failed meanwhile,
// Chunk returns that error.
func (f *FileWriter) Chunk(raw []byte) error {
	if err := f.queue.check(raw); err != nil || len(raw) == 0 {
		return err
	}
	f.queue.mu.Lock()
	defer f.queue.mu.Unlock()
	return f.add(raw, nil)
}

// Copy is like Chunk, for a caller who needs raw back: it appends a copy. It waits while the writer holds as many
// copies as its memory allows.
func (f *FileWriter) Copy(raw []byte) error {
	if err := f.queue.check(raw); err != nil || len(raw) == 0 {
		return err
	}
	q := f.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.copied > 0 && q.copied+int64(len(raw)) > q.share && q.ctx.Err() == nil {
		q.wake.Wait()
	}
	if q.ctx.Err() != nil {
		return q.target.wrap(context.Cause(q.ctx))
	}
	buffer := getBuffer()
	copy(sized(buffer, len(raw)), raw)
	q.copied += int64(len(raw))
	return f.add(*buffer, buffer)
}

// add appends a job. The caller holds f.queue.mu.
func (f *FileWriter) add(raw []byte, copy *[]byte) error {
	q := f.queue
	if q.closed {
		return q.target.wrap(errors.New("chunk after the end"))
	}
	q.jobs = append(q.jobs, job{seq: q.next, file: f, index: len(f.chunks), raw: raw, copy: copy})
	q.next++
	f.chunks = append(f.chunks, Chunk{Raw: uint32(len(raw))})
	if q.printed {
		f.prints = append(f.prints, [format.PrintSize]byte{})
	}
	f.size += int64(len(raw))
	q.wake.Broadcast()
	return nil
}

// Known appends the chunk at a place to the file. If it was stored ahead, Flush must have returned.
func (f *FileWriter) Known(at Place) error {
	q := f.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.target.wrap(errors.New("chunk after the end"))
	}
	c, print, err := f.ahead.at(at)
	if err != nil {
		return q.target.wrap(err)
	}
	f.chunks, f.prints = append(f.chunks, c), append(f.prints, print)
	f.size += int64(c.Raw)
	return nil
}

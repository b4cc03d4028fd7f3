package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// target says which snapshot is written, and where to.
type target struct {
	key      Key
	location string
}

func (t target) wrap(err error) error {
	return fmt.Errorf("write snapshot %s to %s: %w", t.key, t.location, err)
}

// queue holds the files of a snapshot under way, and those of their chunks that wait for a worker. It bounds the raw
// bytes in work. Safe for concurrent use.
type queue struct {
	target  target
	ctx     context.Context // the writer's; its cause is the first failure
	printed bool            // fingerprints are taken of all chunks
	share   int64           // limit for raw bytes in work, and for copied ones: each gets this share of Memory

	mu     sync.Mutex
	wake   sync.Cond // any of the following changed, or the context ended
	files  []*FileWriter
	jobs   []job // waiting for a worker, in order
	closed bool  // no more jobs will come
	next   uint64
	flying int64 // raw bytes that workers have taken and not placed yet
	copied int64 // raw bytes that Copy has copied and that are not placed yet
}

func newQueue(ctx context.Context, t target, share int64, printed bool) *queue {
	q := &queue{target: t, ctx: ctx, printed: printed, share: share}
	q.wake.L = &q.mu
	return q
}

// job is a chunk for a worker.
type job struct {
	seq   uint64      // place among all chunks of the writer, from 0
	file  *FileWriter // nil: it is stored ahead, and part of no file
	index int         // place in the file, or among the chunks that are stored ahead
	raw   []byte
	copy  *[]byte // the buffer that holds raw; nil: raw is the caller's
}

// file returns the writer of a file. For one name it always returns the same writer.
func (q *queue) file(name string, ahead *ahead) *FileWriter {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.files {
		if f.name == name {
			return f
		}
	}
	f := &FileWriter{queue: q, ahead: ahead, name: name}
	q.files = append(q.files, f)
	return f
}

// check returns an error unless a chunk can be added.
func (q *queue) check(raw []byte) error {
	if len(raw) > MaxChunk {
		return fmt.Errorf("snapshot %s: chunk of %d bytes, at most %d allowed", q.target.key, len(raw), MaxChunk)
	}
	if q.ctx.Err() != nil {
		return q.target.wrap(context.Cause(q.ctx))
	}
	return nil
}

// number returns the place of a chunk among all chunks of the writer, for one that is part of no file.
func (q *queue) number() (seq uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, q.target.wrap(errors.New("chunk after the end"))
	}
	seq = q.next
	q.next++
	return seq, nil
}

// take waits for a job. It returns false if no more will come.
func (q *queue) take() (job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ctx.Err() == nil && (len(q.jobs) == 0 && !q.closed || len(q.jobs) > 0 && q.crowded()) {
		q.wake.Wait()
	}
	if len(q.jobs) == 0 || q.ctx.Err() != nil {
		return job{}, false
	}
	j := q.jobs[0]
	q.jobs[0] = job{} // releases the raw bytes
	q.jobs = q.jobs[1:]
	q.flying += int64(len(j.raw))
	return j, true
}

// crowded reports whether chunks that were taken earlier must be placed first. They will be: if any chunk is taken, so
// is the one whose turn it is. The caller holds q.mu.
func (q *queue) crowded() bool {
	return q.flying > 0 && q.flying+int64(len(q.jobs[0].raw)) > q.share
}

// settle records where a file's chunk is stored, and releases what the chunk needed.
func (q *queue) settle(p *placement, c Chunk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.file.chunks[p.index] = c
	if q.printed {
		p.file.prints[p.index] = p.print
	}
	q.flying -= int64(len(p.raw))
	if p.copy != nil {
		q.copied -= int64(len(p.raw))
		putBuffer(p.copy)
	}
	q.wake.Broadcast()
}

// close says that no more chunks will come.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// drop says the same, and forgets the chunks that wait.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.jobs = true, nil
}

// stir wakes all who wait, since the context has ended.
func (q *queue) stir() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake.Broadcast()
}

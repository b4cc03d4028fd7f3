package storage

import (
	"context"
	"io"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
)

// openPack is a pack on its way: chunks are appended to it while the backend reads it. The packer's
// lock guards what both need. It implements io.Reader and io.WriterTo for the backend.
type openPack struct {
	p       *packer
	id      PackID
	number  int // in packer.packs
	passage *passage
	damage  digest.Damage

	size     int        // bytes appended
	segments []*segment // not read to their end yet
	closed   bool       // nothing will be appended any more
	waiting  bool       // the backend waits for more

	piece []byte // that was taken last, as far as it has not been read; of the first segment
	pack  Pack   // set at the end of reading
}

// segment is memory of a pack: chunks side by side, none of which goes on in the next segment.
type segment struct {
	data   *[]byte
	held   int64   // of packer.held
	read   int     // bytes that have been taken
	full   bool    // nothing will be appended any more
	chunks []place // not taken yet, to be encrypted; none when the pack is not
}

// place is where a chunk lies, before it is encrypted.
type place struct {
	offset   uint32 // in the pack
	from, to int    // in the segment
}

// segmentSize is the memory of a segment, in bytes; one that holds a single large chunk may be
// larger. leastPiece is what the backend is woken for: fewer bytes wait until there are more.
const (
	segmentSize = 1 << 20
	leastPiece  = 256 << 10
)

// tail returns the segment that n more bytes go to, or nil if there is none with room for them.
func (o *openPack) tail(n int) *segment {
	if len(o.segments) == 0 {
		return nil
	}
	s := o.segments[len(o.segments)-1]
	if s.full || len(*s.data)+n > cap(*s.data) {
		return nil
	}
	return s
}

// finishTail lets the backend have what there is.
func (o *openPack) finishTail() {
	if len(o.segments) > 0 {
		o.segments[len(o.segments)-1].full = true
	}
	o.p.wake.Broadcast()
}

// append adds bytes to a segment of which tail said that they have room in it.
func (o *openPack) append(s *segment, data []byte, room int) {
	if room > 0 {
		at := len(*s.data)
		s.chunks = append(s.chunks, place{uint32(o.size), at, at + len(data)})
	}
	*s.data = append(*s.data, data...)
	*s.data = (*s.data)[:len(*s.data)+room]
	o.size += len(data) + room
	o.passage.add(len(data) + room)
	if o.waiting && len(*s.data)-s.read >= leastPiece {
		o.p.wake.Broadcast()
	}
}

// take returns the next bytes for the backend, encrypted; it waits for them. The bytes stay until
// the next call. After the last ones the error is io.EOF.
func (o *openPack) take() ([]byte, error) {
	piece, chunks, err := o.next()
	if err != nil {
		return nil, err
	}
	if len(chunks) > 0 {
		a := o.p.w.lineage.lock.packAEAD(o.id)
		for _, c := range chunks {
			sealChunk(a, o.id, c.offset, piece[c.from:c.to])
		}
	}
	o.damage.Add(piece)
	return piece, nil
}

// next waits for a piece: whole chunks of the first segment, and where they lie in it.
func (o *openPack) next() ([]byte, []place, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	defer func() { o.waiting = false }()
	for {
		if o.p.w.ctx.Err() != nil {
			return nil, nil, context.Cause(o.p.w.ctx)
		}
		if len(o.segments) == 0 && o.closed {
			failpoint.PackSealed.Hit()
			o.passage.whole()
			o.pack = Pack{ID: o.id, Size: int64(o.size), Digest: o.damage.Sum()}
			return nil, nil, io.EOF
		}
		if len(o.segments) > 0 {
			s := o.segments[0]
			n := len(*s.data) - s.read
			if n >= leastPiece || n > 0 && s.full {
				o.passage.take(n)
				return s.take()
			}
			if s.full {
				o.segments = o.segments[1:]
				o.p.free(s)
				continue
			}
		}
		o.waiting = true
		o.passage.wait()
		o.p.wake.Wait()
	}
}

// take returns what has not been taken yet.
func (s *segment) take() ([]byte, []place, error) {
	piece, chunks := (*s.data)[s.read:], s.chunks
	for i := range chunks {
		chunks[i].from -= s.read
		chunks[i].to -= s.read
	}
	s.read, s.chunks = len(*s.data), nil
	return piece, chunks, nil
}

// Read implements io.Reader.
func (o *openPack) Read(b []byte) (int, error) {
	if len(o.piece) == 0 {
		var err error
		if o.piece, err = o.take(); err != nil {
			return 0, err
		}
	}
	n := copy(b, o.piece)
	o.piece = o.piece[n:]
	return n, nil
}

// WriteTo implements io.WriterTo.
func (o *openPack) WriteTo(w io.Writer) (total int64, err error) {
	for {
		piece := o.piece
		if o.piece = nil; len(piece) == 0 {
			if piece, err = o.take(); err == io.EOF {
				return total, nil
			}
		}
		if err != nil {
			return total, err
		}
		n, err := w.Write(piece)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

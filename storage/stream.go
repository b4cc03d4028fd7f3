package storage

import (
	"context"
	"crypto/cipher"
	"io"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// openPack is a pack under way: the packer appends chunks while the backend reads. The packer's lock guards what both
// use. It implements io.Reader and io.WriterTo for the backend.
type openPack struct {
	p      *packer
	id     PackID
	number int // in packer.packs
	upload *upload
	damage digest.Damage

	size    int     // bytes appended
	pieces  []piece // not yet taken by the backend
	untaken int     // bytes of pieces
	urgent  bool    // the backend is to get what there is, however little
	closed  bool    // nothing more will be appended
	waiting bool    // the backend waits for more

	taken []piece // pieces that the backend is reading
	at    int     // the first of them that it has not read completely
	read  int     // bytes of that one that it has read
	pack  Pack    // set at the end of reading
}

// piece is the stored bytes of one chunk. They are not moved before the backend reads them.
type piece struct {
	data   []byte
	offset uint32  // in the pack
	seal   bool    // encrypt in place when it is taken; data ends with room for the tag
	buffer *[]byte // the buffer that holds data, to be returned to its pool; nil: others own data
	held   int64   // its share of packer.held
}

// leastPiece is how many bytes must be ready before the backend is woken, unless the pack is urgent.
const leastPiece = 256 << 10

// append adds a piece.
func (o *openPack) append(c piece) {
	c.offset = uint32(o.size)
	o.pieces = append(o.pieces, c)
	o.size += len(c.data)
	o.untaken += len(c.data)
	o.p.held += c.held
	o.upload.add(len(c.data))
	if o.waiting && o.ready() {
		o.p.wake.Broadcast()
	}
}

// urge gives the backend what there is.
func (o *openPack) urge() {
	o.urgent = true
	if o.waiting && o.ready() {
		o.p.wake.Broadcast()
	}
}

// ready reports whether the backend can get more.
func (o *openPack) ready() bool { return o.untaken >= leastPiece || o.urgent && o.untaken > 0 }

// take waits for the next pieces for the backend and encrypts them. They are valid until the next call. After the last
// ones the error is io.EOF.
func (o *openPack) take() error {
	if err := o.next(); err != nil {
		return err
	}
	var a cipher.AEAD
	for i := range o.taken {
		c := &o.taken[i]
		if c.seal {
			if a == nil {
				a = o.p.lineage.lock.PackAEAD(o.id)
			}
			format.SealChunk(a, o.id, c.offset, c.data[:len(c.data)-format.SealSize])
		}
		o.damage.Add(c.data)
	}
	return nil
}

// next frees the pieces that were taken and waits for more.
func (o *openPack) next() error {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	defer func() { o.waiting = false }()
	o.p.free(o.taken)
	o.taken, o.at, o.read = o.taken[:0], 0, 0
	for {
		switch {
		case o.p.ctx.Err() != nil:
			return context.Cause(o.p.ctx)
		case o.ready():
			o.takeSome()
			return nil
		case o.closed:
			failpoint.PackSealed.Hit()
			o.upload.whole()
			o.pack = Pack{ID: o.id, Size: int64(o.size), Digest: o.damage.Sum()}
			return io.EOF
		}
		o.waiting = true
		o.upload.wait()
		o.p.wake.Wait()
	}
}

// takeSome gives the backend no more than leastPiece requires. What the backend has been given counts as read (see
// writeSpeed). If it got more, a slow backend would seem to have nothing left.
func (o *openPack) takeSome() {
	size, n := 0, 0
	for size < leastPiece && n < len(o.pieces) {
		size += len(o.pieces[n].data)
		n++
	}
	o.upload.take(size)
	o.taken = append(o.taken, o.pieces[:n]...)
	clear(o.pieces[:n])
	o.pieces = o.pieces[n:]
	o.untaken -= size
	o.urgent = o.closed || o.urgent && o.untaken > 0
}

// free releases the memory of pieces that the backend has read. The caller holds p.mu.
func (p *packer) free(pieces []piece) {
	if len(pieces) == 0 {
		return
	}
	for i := range pieces {
		p.held -= pieces[i].held
		putBuffer(pieces[i].buffer)
	}
	clear(pieces)
	p.wake.Broadcast()
}

// Read implements io.Reader.
func (o *openPack) Read(b []byte) (int, error) {
	for o.at == len(o.taken) {
		if err := o.take(); err != nil {
			return 0, err
		}
	}
	n := copy(b, o.taken[o.at].data[o.read:])
	if o.read += n; o.read == len(o.taken[o.at].data) {
		o.at, o.read = o.at+1, 0
	}
	return n, nil
}

// VectorWriter is a Writer that can write separate pieces at once. If a backend's Create passes a VectorWriter to
// io.WriterTo, it gets whole pieces.
type VectorWriter interface {
	io.Writer
	WriteVector(pieces [][]byte) (int64, error)
}

// WriteTo implements io.WriterTo.
func (o *openPack) WriteTo(w io.Writer) (total int64, err error) {
	for {
		n, err := o.writeTaken(w)
		total += n
		if err == nil {
			err = o.take()
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// writeTaken writes the pieces that are taken and not read yet.
func (o *openPack) writeTaken(w io.Writer) (total int64, err error) {
	rest := make([][]byte, 0, len(o.taken)-o.at)
	for i := o.at; i < len(o.taken); i++ {
		rest = append(rest, o.taken[i].data)
	}
	if len(rest) == 0 {
		return 0, nil
	}
	rest[0] = rest[0][o.read:]
	o.at, o.read = len(o.taken), 0
	if v, ok := w.(VectorWriter); ok {
		return v.WriteVector(rest)
	}
	for _, data := range rest {
		n, err := w.Write(data)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

package state

import (
	"bufio"
	"io"
)

// input reads the encoding of one object at a time, and keeps all of it until release, so that parts of it can be read
// again. It takes no byte from its source that does not belong to the object graph: what follows in the stream is
// somebody else's.
type input struct {
	// buf has what was read, pos is where the next byte is.
	buf []byte
	pos int

	// source is where more comes from. If it is buffered, all that is there at a time is borrowed.
	source   io.Reader
	buffered *bufio.Reader
	borrowed int
}

// buffer is implemented by readers that give what they have read ahead.
type buffer interface {
	// Buffer returns the buffer, or nil if the bytes in it are not what Read returns.
	Buffer() *bufio.Reader
}

// makeInput returns an input that reads from r.
func makeInput(r io.Reader) input {
	in := input{source: r}
	switch r := r.(type) {
	case *bufio.Reader:
		in.buffered = r
	case buffer:
		in.buffered = r.Buffer()
	}
	return in
}

// readSize is how much is read at once, at most, from a source that is not buffered.
const readSize = 64 << 10

// fill reads at least one byte, and at most n unless the source is buffered. It panics on error.
func (in *input) fill(n int) {
	if in.source == nil {
		panic(io.ErrUnexpectedEOF)
	}
	if in.buffered != nil {
		in.giveBack(0)
		if _, err := in.buffered.Peek(1); err != nil {
			panic(err)
		}
		b, err := in.buffered.Peek(in.buffered.Buffered())
		if err != nil {
			panic(err)
		}
		in.buf = append(in.buf, b...)
		in.borrowed = len(b)
		return
	}
	have := len(in.buf)
	in.buf = append(in.buf, make([]byte, min(n, readSize))...)
	for {
		n, err := in.source.Read(in.buf[have:])
		if n > 0 {
			in.buf = in.buf[:have+n]
			return
		}
		if err != nil {
			panic(err)
		}
	}
}

// giveBack returns the last n bytes that were read to a buffered source.
func (in *input) giveBack(n int) {
	if in.borrowed > 0 {
		if _, err := in.buffered.Discard(in.borrowed - n); err != nil {
			panic(err)
		}
		in.borrowed = 0
	}
}

// release forgets what was read.
func (in *input) release() {
	if in.pos >= readSize || in.pos == len(in.buf) {
		in.buf = in.buf[:copy(in.buf, in.buf[in.pos:])]
		in.pos = 0
	}
}

// finish gives back what was not read.
func (in *input) finish() {
	in.giveBack(len(in.buf) - in.pos)
}

// bytes reads n bytes. They are valid until the next call.
func (in *input) bytes(n uint64) []byte {
	for uint64(len(in.buf)-in.pos) < n {
		in.fill(int(min(n-uint64(len(in.buf)-in.pos), readSize)))
	}
	b := in.buf[in.pos : in.pos+int(n)]
	in.pos += int(n)
	return b
}

// uint reads an unsigned integer.
func (in *input) uint() uint64 {
	if in.pos < len(in.buf) {
		if b := in.buf[in.pos]; b < 0x80 {
			in.pos++
			return uint64(b)
		}
	}
	return in.longUint()
}

func (in *input) longUint() uint64 {
	var u uint64
	for i := range 10 {
		if in.pos == len(in.buf) {
			in.fill(1)
		}
		b := in.buf[in.pos]
		in.pos++
		if b < 0x80 {
			if i == 9 && b > 1 {
				panic("overflow")
			}
			return u | uint64(b)<<(7*i)
		}
		u |= uint64(b&0x7f) << (7 * i)
	}
	panic("overflow")
}

// int reads a signed integer.
func (in *input) int() int64 {
	u := in.uint()
	x := int64(u >> 1)
	if u&1 != 0 {
		x = ^x
	}
	return x
}

// maxDepth is how deep objects may be nested in each other in a stream. Types limit that, too, but not everywhere.
const maxDepth = 10000

// maxSpecDepth is how deep types may be nested in a specification. No type of a kernel comes near it, and each level
// of a type is memory that is never freed.
const maxSpecDepth = 100

// skip passes over an object.
func (in *input) skip(depth int) {
	in.skipBody(in.uint(), depth)
}

// skipBody passes over an object whose header was read.
func (in *input) skipBody(header uint64, depth int) {
	if depth++; depth > maxDepth {
		Failf("objects are nested more than %d deep", maxDepth)
	}
	switch header {
	case headerBool, headerInt, headerUint, headerFloat32, headerFloat64:
		in.uint()
	case headerNil, headerNoObjects:
	case headerRef:
		in.skipRef()
	case headerString:
		in.bytes(in.uint())
	case headerSlice:
		in.uint()
		in.uint()
		in.skipRef()
	case headerArray:
		in.skipArray(depth)
	case headerMap:
		in.skipMap(depth)
	case headerStruct:
		in.uint()
		in.skip(depth)
	case headerMultipleObjects:
		for n := in.uint(); n > 0; n-- {
			in.skip(depth)
		}
	case headerInterface:
		in.skipSpec(0)
		in.skip(depth)
	case headerComplex64, headerComplex128:
		in.uint()
		in.uint()
	case headerType:
		in.bytes(in.uint())
		for n := in.uint(); n > 0; n-- {
			in.bytes(in.uint())
		}
	default:
		Failf("unknown header: %d", header)
	}
}

// bodiless reports whether objects with this header consist of the header alone.
func bodiless(header uint64) bool {
	return header == headerNil || header == headerNoObjects
}

func (in *input) skipArray(depth int) {
	n := in.uint()
	if n == 0 {
		return
	}
	header := in.uint()
	if bodiless(header) {
		return
	}
	for ; n > 0; n-- {
		in.skipBody(header, depth)
	}
}

func (in *input) skipMap(depth int) {
	n := in.uint()
	if n == 0 {
		return
	}
	key := in.uint()
	in.skipBody(key, depth)
	elem := in.uint()
	in.skipBody(elem, depth)
	if bodiless(key) && bodiless(elem) {
		return
	}
	for ; n > 1; n-- {
		in.skipBody(key, depth)
		in.skipBody(elem, depth)
	}
}

func (in *input) skipRef() {
	in.uint()
	n := in.uint()
	if n == 0 {
		return
	}
	for ; n > 0; n-- {
		in.dot()
	}
	in.skipSpec(0)
}

// dot reads a step of a reference: the name of a field or, without one, the index of an element. The name is valid
// until the next read.
func (in *input) dot() (name []byte, index uint32) {
	d := in.int()
	if d >= 0 {
		return nil, uint32(d)
	}
	return in.bytes(uint64(-d)), 0
}

// skipSpec passes over the specification of a type.
func (in *input) skipSpec(depth int) {
	if depth > maxSpecDepth {
		Failf("types are nested more than %d deep", maxSpecDepth)
	}
	depth++
	switch header := in.uint(); header {
	case specTypeID:
		in.uint()
	case specPointer, specSlice:
		in.skipSpec(depth)
	case specArray:
		in.uint()
		in.skipSpec(depth)
	case specMap:
		in.skipSpec(depth)
		in.skipSpec(depth)
	case specNil:
	default:
		Failf("unknown header: %d", header)
	}
}

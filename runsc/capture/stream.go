package capture

import "iter"

// Stream is a part of a snapshot that is written in order while the sandbox is paused. It is kept in a nameless
// file until it is stored. Only one goroutine at a time may use it.
type Stream struct {
	file *overflow
	size int64   // bytes written
	cuts []int64 // where to cut it, in order
	buf  []byte  // the last bytes written, not yet in the file
}

// streamBuffer is how many bytes of a stream are written to its file at a time.
const streamBuffer = 256 << 10

// NewStream returns an empty stream whose file is in dir, encrypted if encrypt is set.
func NewStream(dir string, encrypt bool) (*Stream, error) {
	f, err := newOverflow(dir, encrypt)
	if err != nil {
		return nil, err
	}
	return &Stream{file: f, buf: make([]byte, 0, streamBuffer)}, nil
}

// Size returns how many bytes have been written.
func (s *Stream) Size() int64 { return s.size }

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		some := p[:min(len(p), streamBuffer-len(s.buf))]
		s.buf = append(s.buf, some...)
		s.size += int64(len(some))
		n, p = n+len(some), p[len(some):]
		if len(s.buf) == streamBuffer {
			if err := s.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (s *Stream) flush() error {
	err := s.file.write(s.buf, s.size-int64(len(s.buf)))
	s.buf = s.buf[:0]
	return err
}

// Cut makes a new chunk begin with what is written next. So the same content stays the same chunk in the next
// checkpoint, even if its place in the stream changes.
func (s *Stream) Cut() {
	if n := len(s.cuts); n == 0 || s.cuts[n-1] < s.size {
		s.cuts = append(s.cuts, s.size)
	}
}

// Seal makes what was written readable. Nothing may be written after it.
func (s *Stream) Seal() error {
	err := s.flush()
	s.buf = nil
	return err
}

// Read fills p with the bytes from off on, which must have been written. After an error its content is unspecified.
func (s *Stream) Read(p []byte, off int64) error { return s.file.read(p, off) }

// Part is a part of a stream.
type Part struct{ Off, Len int64 }

// Chunks cuts the stream into parts of at most size bytes.
func (s *Stream) Chunks(size int64) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		var at int64
		for i := range len(s.cuts) + 1 {
			end := s.size
			if i < len(s.cuts) {
				end = s.cuts[i]
			}
			for at < end {
				n := min(size, end-at)
				if !yield(Part{Off: at, Len: n}) {
					return
				}
				at += n
			}
		}
	}
}

// Close closes the file, and so deletes it.
func (s *Stream) Close() error { return s.file.close() }

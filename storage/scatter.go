package storage

// scatter is the part of a list of slices that is still to be filled. It does not change the list itself.
type scatter struct {
	head []byte
	rest [][]byte
}

// skip moves head to the slice with the next byte to fill.
func (s *scatter) skip() {
	for len(s.head) == 0 && len(s.rest) > 0 {
		s.head, s.rest = s.rest[0], s.rest[1:]
	}
}

// straight returns the next n bytes to fill as one slice and counts them as filled. It fails if they are not in one
// slice.
func (s *scatter) straight(n int) ([]byte, bool) {
	s.skip()
	if len(s.head) < n {
		return nil, false
	}
	return s.next(n), true
}

// next returns up to n of the next bytes to fill, at least one, and counts them as filled. There
// must be a byte left to fill.
func (s *scatter) next(n int) []byte {
	s.skip()
	n = min(n, len(s.head))
	b := s.head[:n]
	s.head = s.head[n:]
	return b
}

// cut returns the next n bytes to fill as a scatter of their own, and counts them as filled.
func (s *scatter) cut(n int) scatter {
	var rest [][]byte
	for n > 0 {
		b := s.next(n)
		rest = append(rest, b)
		n -= len(b)
	}
	return scatter{rest: rest}
}

func (s *scatter) copy(data []byte) {
	for len(data) > 0 {
		data = data[copy(s.next(len(data)), data):]
	}
}

func (s *scatter) zero(n int64) {
	for n > 0 {
		b := s.next(int(n))
		clear(b)
		n -= int64(len(b))
	}
}

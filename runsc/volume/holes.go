package volume

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holesRecord is the PAX record of a file with holes. It holds the file's size, and the pieces of data that the
// stream has, in order: "size offset+length offset+length ...".
const holesRecord = "DIAPAUSE.data"

// extent is a piece of a file, in bytes.
type extent struct{ off, n int64 }

// extents are pieces of a file, in order. No two of them touch.
type extents []extent

func (x extents) bytes() (n int64) {
	for _, e := range x {
		n += e.n
	}
	return n
}

// solid reports whether the pieces cover a whole file of that size.
func (x extents) solid(size int64) bool { return x.bytes() == size }

// dataOf finds the pieces of a file that have data.
func dataOf(fd int, st *unix.Stat_t) (x extents, err error) {
	if st.Size == 0 {
		return nil, nil
	}
	if st.Blocks*512 >= st.Size {
		return extents{{0, st.Size}}, nil
	}
	for off := int64(0); off < st.Size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && start >= st.Size {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("find data: %w", err)
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("find holes: %w", err)
		}
		if end = min(end, st.Size); len(x) == maxExtents-1 {
			end = st.Size // the last piece takes the rest, holes included
		}
		if end <= start {
			return nil, errors.New("it changed while its data was looked for")
		}
		x, off = append(x, extent{start, end - start}), end
	}
	return x, nil
}

func (x extents) encode(size int64) string {
	b := strconv.AppendInt(nil, size, 10)
	for _, e := range x {
		b = fmt.Appendf(b, " %d+%d", e.off, e.n)
	}
	return string(b)
}

// parseExtents is the inverse of encode. The pieces that it returns are in order, and lie in a file of that size.
func parseExtents(s string) (x extents, size int64, err error) {
	first, rest, _ := strings.Cut(s, " ")
	if size, err = number(first); err != nil {
		return nil, 0, err
	}
	var end int64
	for rest != "" {
		var one string
		one, rest, _ = strings.Cut(rest, " ")
		off, n, _ := strings.Cut(one, "+")
		var e extent
		if e.off, err = number(off); err == nil {
			e.n, err = number(n)
		}
		if err != nil {
			return nil, 0, err
		}
		if e.off < end || e.n == 0 || e.off > size || e.n > size-e.off || len(x) == maxExtents {
			return nil, 0, fmt.Errorf("piece %d, %d bytes at offset %d of %d, is out of place", len(x), e.n, e.off, size)
		}
		x, end = append(x, e), e.off+e.n
	}
	return x, size, nil
}

func number(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no number of bytes", s)
	}
	return int64(n), nil
}

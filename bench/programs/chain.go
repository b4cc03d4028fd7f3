package programs

import (
	"fmt"
	"strconv"
	"strings"
)

// chain is a digest of the numbers 1 to n that any language computes in a line: FNV-1a over whole numbers, of 32 bits.
func chain(n int64) uint32 {
	h := uint32(2166136261)
	for i := range n {
		h = h*16777619 ^ uint32(i+1)
	}
	return h
}

// parseFound reads the answer to a check: of each stream the last number and the chain of all that it has, then the
// digest of the program's data.
func parseFound(answer string) (f Found, err error) {
	fields := strings.Fields(answer)
	if len(fields) != 2*Streams+1 {
		return f, fmt.Errorf("answer to a check: %.200q", answer)
	}
	for i := range Streams {
		n, err := strconv.ParseInt(fields[2*i], 10, 64)
		if err != nil {
			return f, fmt.Errorf("answer to a check: %w", err)
		}
		if want := strconv.FormatUint(uint64(chain(n)), 10); fields[2*i+1] != want {
			return f, fmt.Errorf("stream %d has not just the numbers 1 to %d: their chain is %s, want %s", i, n,
				fields[2*i+1], want)
		}
		f.Writes[i] = n
	}
	f.Digest = fields[2*Streams]
	return f, nil
}

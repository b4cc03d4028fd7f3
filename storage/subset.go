package storage

import (
	"encoding/binary"
	"fmt"
)

// Subset is one of several shares of all packs: share Part of Of, counted from 1. Each pack is always in the same one
// of these shares. So Of verifications, one for each part, read everything once. The zero Subset is all packs.
type Subset struct{ Part, Of int }

// ParseSubset parses a subset as given to a flag: "2/5" is the second of five.
func ParseSubset(s string) (Subset, error) {
	var b Subset
	if n, err := fmt.Sscanf(s+"\n", "%d/%d\n", &b.Part, &b.Of); n != 2 || err != nil || b.Validate() != nil ||
		b == (Subset{}) {
		return Subset{}, fmt.Errorf("subset %.40q: want n/t, with n from 1 to t", s)
	}
	return b, nil
}

// Validate returns an error if there is no such subset.
func (b Subset) Validate() error {
	if b != (Subset{}) && (b.Part < 1 || b.Part > b.Of) {
		return fmt.Errorf("subset %d/%d: want n/t, with n from 1 to t", b.Part, b.Of)
	}
	return nil
}

// has reports whether a pack is in the subset. Pack ids are random, so the parts have about the same size.
func (b Subset) has(id PackID) bool {
	return b == (Subset{}) || binary.BigEndian.Uint64(id[:8])%uint64(b.Of) == uint64(b.Part-1)
}

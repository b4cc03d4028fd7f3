package storage

// index finds things in a list by their hashes. It holds 4 bytes for each slot and no copy of the things, because a
// large snapshot has millions of them. The zero index is empty.
type index struct {
	slots []uint32 // each is a place in the list plus one, or 0 if it is free. Their number is a power of two
	used  int
}

// newIndex returns an index with room for n things.
func newIndex(n int) index {
	size := 16
	for size*3/4 < n {
		size *= 2
	}
	return index{slots: make([]uint32, size)}
}

// find returns the place of the thing with this hash for which is returns true.
func (x *index) find(hash uint64, is func(place uint32) bool) (place uint32, ok bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(x.slots) - 1)
	for i := hash & mask; x.slots[i] != 0; i = (i + 1) & mask {
		if place := x.slots[i] - 1; is(place) {
			return place, true
		}
	}
	return 0, false
}

// add adds a thing that is not in the index yet. If the index has to grow, add asks hashOf for the hashes of the
// others.
func (x *index) add(hash uint64, place uint32, hashOf func(place uint32) uint64) {
	if (x.used+1)*4 > len(x.slots)*3 {
		larger := newIndex(2 * (x.used + 1))
		for _, p := range x.slots {
			if p != 0 {
				larger.insert(hashOf(p-1), p-1)
			}
		}
		*x = larger
	}
	x.insert(hash, place)
}

func (x *index) insert(hash uint64, place uint32) {
	mask := uint64(len(x.slots) - 1)
	i := hash & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = place + 1
	x.used++
}

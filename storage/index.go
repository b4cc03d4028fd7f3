package storage

// index finds things by what they are known by, given where they stand in a list: it holds 4 bytes for each slot, and
// nothing of the things themselves, of which a large snapshot has millions. The zero index is empty.
type index struct {
	slots []uint32 // places in the list, each one more than it is; 0: none. A power of two of them
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

// find returns the place of the thing of that hash for which is says true.
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

// add adds a thing that is not there yet. The hashes of others are asked for when there is no more room.
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

package state

// addressIndex finds the object that occupies an address. The ranges of its objects never overlap.
//
// It is a hash table of small sorted arrays, one for each chunk of the address space. Most objects are far smaller
// than a chunk, so a chunk holds some ten of them, side by side in memory. An object that spans several chunks is in
// each of them.
type addressIndex struct {
	chunks map[uintptr]*addressChunk

	// last is the chunk that was used last. Objects that are met together were often allocated together.
	last *addressChunk
}

// addressShift is the binary logarithm of a chunk's size in bytes.
const addressShift = 12

// addressChunk has the objects of one chunk, in the order of their addresses.
type addressChunk struct {
	number  uintptr
	entries []addressEntry
}

// addressEntry is an object that occupies [start, end).
type addressEntry struct {
	start, end uintptr
	object     *encodedObject
}

func makeAddressIndex() addressIndex {
	return addressIndex{chunks: make(map[uintptr]*addressChunk)}
}

// chunk returns the chunk with that number, or nil.
func (x *addressIndex) chunk(number uintptr) *addressChunk {
	if x.last != nil && x.last.number == number {
		return x.last
	}
	c := x.chunks[number]
	if c != nil {
		x.last = c
	}
	return c
}

// after returns the index of the first entry that ends beyond addr.
func (c *addressChunk) after(addr uintptr) int {
	lo, hi := 0, len(c.entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c.entries[mid].end > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// first returns the object with the lowest address among those that overlap [start, end).
func (x *addressIndex) first(start, end uintptr) (addressEntry, bool) {
	for n := start >> addressShift; n <= (end-1)>>addressShift; n++ {
		c := x.chunk(n)
		if c == nil {
			continue
		}
		if i := c.after(start); i < len(c.entries) {
			e := c.entries[i]
			return e, e.start < end
		}
	}
	return addressEntry{}, false
}

// insert adds an object. Its range must overlap no other's.
func (x *addressIndex) insert(e addressEntry) {
	for n := e.start >> addressShift; n <= (e.end-1)>>addressShift; n++ {
		c := x.chunk(n)
		if c == nil {
			c = &addressChunk{number: n, entries: make([]addressEntry, 0, 8)}
			x.chunks[n], x.last = c, c
		}
		i := c.after(e.start)
		c.entries = append(c.entries, addressEntry{})
		copy(c.entries[i+1:], c.entries[i:])
		c.entries[i] = e
	}
}

// remove undoes insert.
func (x *addressIndex) remove(e addressEntry) {
	for n := e.start >> addressShift; n <= (e.end-1)>>addressShift; n++ {
		c := x.chunk(n)
		i := c.after(e.start)
		c.entries = append(c.entries[:i], c.entries[i+1:]...)
	}
}

package state

// startAt is start for a struct that is in so many others. Its time counts as that of the outermost one: to take the
// time of each struct takes longer than to encode most of them.
func (s *Stats) startAt(depth int, id typeID) {
	if depth == 0 {
		s.start(id)
		return
	}
	if n := 1 + int(id) - len(s.byType); n > 0 {
		s.byType = append(s.byType, make([]statEntry, n)...)
	}
	s.byType[id].count++
}

// doneAt is done for a struct that is in so many others.
func (s *Stats) doneAt(depth int) {
	if depth == 0 {
		s.done()
	}
}

package state

// counted counts an object of a type. Its time is not taken: to take that of each object takes longer than to encode or
// to decode many of them.
func (s *Stats) counted(id typeID) {
	if n := 1 + int(id) - len(s.byType); n > 0 {
		s.byType = append(s.byType, make([]statEntry, n)...)
	}
	s.byType[id].count++
}

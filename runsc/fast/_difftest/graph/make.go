package graph

import (
	"fmt"
	"math"
)

// source gives choices from bytes. At the end of the bytes every choice is 0.
type source struct{ data []byte }

func (s *source) n(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}

func (s *source) int() int64 {
	v := int64(s.n(256)) << (8 * s.n(8))
	if s.n(2) == 1 {
		return -v
	}
	return v
}

// from returns the index from which a slice is taken.
func (s *shared) from(n int) int {
	if !s.odd {
		return 0
	}
	return s.n(n)
}

func (s *source) str() string { return fmt.Sprintf("%.*s", s.n(12), "abcdefghijkl") }

// shared are things that more than one node may refer to.
type shared struct {
	*source
	// odd graphs have slices that overlap in part, which cannot be saved, and cycles of objects that wait for each
	// other, which cannot be loaded.
	odd    bool
	nodes  []*Node
	leaves []Leaf
	halfs  []uint16
	bytes  []byte
	ints   []int64
	maps   []map[string]*Node
	anys   []any
	numMap map[string]int
}

// Make makes a graph. Maps are small, except one that several nodes may share.
func Make(data []byte) *Root {
	s := &shared{source: &source{data: data}}
	s.odd = s.n(8) == 1
	s.nodes = make([]*Node, 1+s.n(12))
	backing := make([]Node, len(s.nodes)) // some nodes are elements of an array
	for i := range s.nodes {
		if s.n(3) == 0 {
			s.nodes[i] = &backing[i]
		} else {
			s.nodes[i] = &Node{}
		}
		s.nodes[i].id = int32(i)
	}
	s.leaves = make([]Leaf, 1+s.n(6), 8)
	s.halfs = make([]uint16, 1+s.n(6), 8)
	s.bytes = make([]byte, 200)
	s.ints = make([]int64, 6)
	s.numMap = map[string]int{"one": 1, "two": 2, "three": 3}
	s.maps = []map[string]*Node{nil, {}, {"a": s.node(), "b": s.node(), "c": nil}}
	s.anys = []any{s.leaf(), Pointed{s.node()}}
	for i := range s.leaves {
		s.leaves[i] = s.leaf()
	}
	for i := range s.bytes {
		s.bytes[i] = byte(i * 3)
	}
	for i, n := range s.nodes {
		s.fill(n)
		if i > 0 && s.n(2) == 0 {
			n.prev, s.nodes[i-1].next = s.nodes[i-1], n
		}
	}
	r := &Root{First: s.node()}
	for range s.n(4) {
		r.Nodes = append(r.Nodes, s.node())
	}
	return r
}

func (s *shared) node() *Node { return s.nodes[s.n(len(s.nodes))] }

// later returns a node that n may wait for.
func (s *shared) later(n *Node) *Node {
	if m := s.node(); s.odd || m.id > n.id {
		return m
	}
	return nil
}

func (s *shared) leaf() Leaf {
	return Leaf{A: int8(s.int()), B: uint64(s.int()), S: s.str(), F: s.float()}
}

func (s *shared) float() float64 {
	return []float64{0, 1.5, math.Copysign(0, -1), math.Inf(1), math.NaN(), 1e300, float64(float32(0.1))}[s.n(7)]
}

// leafAt returns a leaf that is part of something else, or is not.
func (s *shared) leafAt() *Leaf {
	n := s.node()
	return []*Leaf{nil, &n.In.L, &n.Leaves[s.n(4)], &n.Wrap.Inner.L, &s.leaves[s.n(len(s.leaves))], {A: 3}}[s.n(6)]
}

func (s *shared) slice() []Leaf {
	l := s.leaves[:cap(s.leaves)]
	from := s.from(len(l))
	to := from + s.n(len(l)-from)
	if s.odd {
		return [][]Leaf{l[from:to:to], s.node().Leaves[1:3]}[s.n(2)]
	}
	return [][]Leaf{nil, s.leaves, l[:to], {}, s.node().Leaves[:s.n(4)], {s.leaf(), {}}}[s.n(6)]
}

// any returns something to put into an interface.
func (s *shared) any() any {
	switch s.n(18) {
	case 0:
		return nil
	case 1:
		return s.node()
	case 2:
		return s.leaf()
	case 3:
		return s.leafAt()
	case 4:
		return int(s.int())
	case 5:
		return s.str()
	case 6:
		return s.bytes[s.from(10):]
	case 7:
		return s.maps[s.n(len(s.maps))]
	case 8:
		return Count(s.int())
	case 9:
		return Names{s.str(), "x"}
	case 10:
		return s.anys[s.n(len(s.anys))]
	case 11:
		return []*Node{s.node(), nil, s.node()}
	case 12:
		return [2]Leaf{s.leaf(), {}}
	case 13:
		return &Empty{}
	case 14:
		return complex64(complex(s.float(), 1))
	case 15:
		return map[int8][]Leaf{3: s.slice()}
	case 16:
		return float32(s.float())
	default:
		return &[2]any{s.node(), true}
	}
}

func (s *shared) shape() Shape {
	if s.n(2) == 0 {
		return Count(s.int())
	}
	if l := s.leafAt(); l != nil {
		return l
	}
	return nil
}

// fill gives fields of n values. Most stay zero.
func (s *shared) fill(n *Node) {
	for range s.n(40) {
		s.set(n, s.n(64))
	}
}

func (s *shared) set(n *Node, field int) {
	m := s.node()
	switch field {
	case 0:
		n.In = Inner{X: int(s.int()), L: s.leaf(), Halfs: [3]uint16{1, 0, uint16(s.int())}}
	case 1:
		n.Leaves[s.n(4)] = s.leaf()
	case 2:
		n.Wrap.Inner.L = s.leaf()
	case 3:
		n.One = s.later(n)
	case 4:
		n.PLeaf = s.leafAt()
	case 5:
		n.PInt = &m.In.X
	case 6:
		n.PHalf = []*uint16{&m.In.Halfs[s.n(3)], &s.halfs[0], new(uint16)}[s.n(3)]
	case 7:
		n.PHalfs = &m.In.Halfs
	case 8:
		n.PIn = []*Inner{&m.In, &m.Wrap.Inner, {X: 4}}[s.n(3)]
	case 9:
		n.PWrap = &m.Wrap
	case 10:
		n.PEmpty = []*Empty{&m.In.Last, {}}[s.n(2)]
	case 11:
		n.PNone = &struct{}{}
	case 12:
		n.PP = []**Node{&m.next, &m.One, new(*Node)}[s.n(3)]
	case 13:
		n.PM = &m.Map
	case 14:
		n.PS = &m.Slice
	case 15:
		n.PI = &m.Any
	case 16:
		n.Slice = s.slice()
	case 17:
		n.Nodes = []*Node{m, nil, s.node()}[:s.n(4)]
	case 18:
		n.Bytes = s.bytes[s.from(200):]
	case 19:
		n.Ints = s.ints[s.from(6):]
	case 20:
		n.Deep = [][]uint16{s.halfs, nil, {}, s.halfs[:1]}
	case 21:
		n.Strs = []string{s.str(), "", s.str()}
	case 22:
		n.Anys = []any{s.any(), nil, s.any()}
	case 23:
		n.Fixed = [][2]Leaf{{s.leaf()}, {}}
	case 24:
		n.Zeros = make([]struct{}, s.n(3))
	case 25:
		n.Halfs = m.In.Halfs[s.from(3):]
	case 26:
		n.Whole = Names{s.str()}
	case 27:
		n.Number = Count(s.int())
	case 28:
		n.Map = s.maps[s.n(len(s.maps))]
	case 29:
		n.Structs = map[int32]Leaf{1: s.leaf(), -7: s.leaf()}
	case 30:
		n.ByKey = map[Key][]byte{{N: 1, S: s.str()}: s.bytes[:s.n(9)], {}: nil}
	case 31:
		n.Maps = map[uint8]map[string]int{1: s.numMap, 2: s.numMap, 3: nil, 200: {}}
	case 32:
		n.MAny = map[string]any{"a": s.any(), "b": s.any()}
	case 33:
		n.MArr = map[int16][2]Leaf{5: {s.leaf(), s.leaf()}}
	case 34:
		n.Any = s.any()
	case 35:
		n.Shape = s.shape()
	case 36:
		n.B = true
	case 37:
		n.I, n.I16, n.I32, n.I64 = int(s.int()), int16(s.int()), int32(s.int()), s.int()
	case 38:
		n.U, n.U8, n.U16, n.U32 = uint(s.int()), uint8(s.int()), uint16(s.int()), uint32(s.int())
	case 39:
		n.UP = uintptr(s.int())
	case 40:
		n.F32, n.F64 = float32(s.float()), s.float()
	case 41:
		n.C64, n.C128 = complex64(complex(s.float(), s.float())), complex(s.float(), s.float())
	case 42:
		n.Fs[s.n(2)] = float32(s.float())
	case 43:
		n.Ss[s.n(2)] = s.str()
	case 44:
		n.Ms[s.n(2)] = s.numMap
	case 45:
		n.As[s.n(2)] = s.any()
	case 46:
		n.Sls[s.n(2)] = s.ints[:2]
	case 47:
		n.value = s.int()
	case 48:
		n.made = []string{s.str(), "made"}
	case 49:
		n.madePtr = s.str()
	case 50:
		n.madeLeaf = s.leaf()
	case 51:
		n.waited = s.later(n)
	case 52:
		n.next = m
	case 53:
		n.prev = m
	case 54:
		s.leaves[s.n(len(s.leaves))] = s.leaf()
	case 55:
		s.halfs[0] = uint16(s.int())
	case 56:
		s.ints[s.n(6)] = s.int()
	case 57:
		n.PP = &s.nodes[s.n(len(s.nodes))]
	case 58:
		n.Nodes = s.nodes[s.from(len(s.nodes)):]
	case 59:
		n.Slice = n.Leaves[:]
	case 60:
		n.Halfs = s.halfs
	case 61:
		n.Anys = s.anys
	case 62:
		n.ByNode = map[*Node]string{m: "m", s.node(): s.str(), nil: "none"}
	case 63:
		n.ByAny = map[any]int{m: 1, int64(3): 2, "3": 3, Count(s.int()): 4, Key{N: 5, S: s.str()}: 5, [2]int8{1}: 6, nil: 7}
	}
}

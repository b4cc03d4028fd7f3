// Package graph makes object graphs from bytes, to be saved and loaded by one implementation of package state. There is
// a copy of it for each implementation: what differs is the import path of that package.
package graph

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"gvisor.dev/gvisor/pkg/state"
)

// Leaf is a small struct. It is found alone, in structs, in arrays, in slices, in maps and in interfaces.
type Leaf struct {
	A int8
	B uint64
	S string
	F float64
}

// Inner is a struct in a struct.
type Inner struct {
	X     int
	L     Leaf
	Halfs [3]uint16
	Last  Empty
}

// Empty occupies no memory.
type Empty struct{}

// Wrapper occupies the same memory as what it wraps.
type Wrapper struct {
	None  [0]int
	Inner Inner
}

// Pointed is one pointer, which an interface holds without boxing it.
type Pointed struct{ To *Node }

// Count is a registered type that is no struct.
type Count uint32

// Names is a registered slice.
type Names []string

// Key is a struct that is a key of maps.
type Key struct {
	N int32
	S string
}

// Shape is an interface with a method.
type Shape interface{ Sides() int }

// Sides implements Shape.
func (l *Leaf) Sides() int { return int(l.A) }

// Sides implements Shape.
func (c Count) Sides() int { return int(c) }

// Node has a field of every kind.
type Node struct {
	id         int32
	next, prev *Node

	In     Inner
	Leaves [4]Leaf
	Wrap   Wrapper
	Embed

	PLeaf  *Leaf
	PInt   *int
	PHalf  *uint16
	PHalfs *[3]uint16
	PIn    *Inner
	PWrap  *Wrapper
	PEmpty *Empty
	PNone  *struct{}
	PP     **Node
	PM     *map[string]*Node
	PS     *[]Leaf
	PI     *any

	Slice  []Leaf
	Nodes  []*Node
	Bytes  []byte
	Ints   []int64
	Deep   [][]uint16
	Strs   []string
	Anys   []any
	Fixed  [][2]Leaf
	Zeros  []struct{}
	Halfs  []uint16
	Whole  Names
	Number Count

	Map     map[string]*Node
	Structs map[int32]Leaf
	ByKey   map[Key][]byte
	Maps    map[uint8]map[string]int
	MAny    map[string]any
	MArr    map[int16][2]Leaf
	ByNode  map[*Node]string
	ByAny   map[any]int

	Any   any
	Shape Shape

	B    bool
	I    int
	I16  int16
	I32  int32
	I64  int64
	U    uint
	U8   uint8
	U16  uint16
	U32  uint32
	UP   uintptr
	F32  float32
	F64  float64
	C64  complex64
	C128 complex128
	Fs   [2]float32
	Ss   [2]string
	Ms   [2]map[string]int
	As   [2]any
	Sls  [2][]int64

	// Of these the graph saves something else.
	value    int64
	made     []string
	madePtr  string
	madeLeaf Leaf
	waited   *Node

	log *Log
}

// Embed is embedded.
type Embed struct{ One *Node }

// Log lists calls of afterLoad. It is found by Context.
type Log struct{ Calls []string }

type logKey struct{}

func (l *Leaf) StateTypeName() string { return "graph.Leaf" }
func (l *Leaf) StateFields() []string { return []string{"A", "B", "S", "F"} }
func (l *Leaf) StateSave(m state.Sink) {
	m.Save(0, &l.A)
	m.Save(1, &l.B)
	m.Save(2, &l.S)
	m.Save(3, &l.F)
}

func (l *Leaf) StateLoad(_ context.Context, m state.Source) {
	m.Load(0, &l.A)
	m.Load(1, &l.B)
	m.Load(2, &l.S)
	m.Load(3, &l.F)
}

func (i *Inner) StateTypeName() string { return "graph.Inner" }
func (i *Inner) StateFields() []string { return []string{"X", "L", "Halfs", "Last"} }
func (i *Inner) StateSave(m state.Sink) {
	m.Save(0, &i.X)
	m.Save(1, &i.L)
	m.Save(2, &i.Halfs)
	m.Save(3, &i.Last)
}

func (i *Inner) StateLoad(_ context.Context, m state.Source) {
	m.Load(0, &i.X)
	m.Load(1, &i.L)
	m.Load(2, &i.Halfs)
	m.Load(3, &i.Last)
}

func (e *Empty) StateTypeName() string                       { return "graph.Empty" }
func (e *Empty) StateFields() []string                       { return []string{} }
func (e *Empty) StateSave(state.Sink)                        {}
func (e *Empty) StateLoad(_ context.Context, _ state.Source) {}

func (w *Wrapper) StateTypeName() string                       { return "graph.Wrapper" }
func (w *Wrapper) StateFields() []string                       { return []string{"Inner"} }
func (w *Wrapper) StateSave(m state.Sink)                      { m.Save(0, &w.Inner) }
func (w *Wrapper) StateLoad(_ context.Context, m state.Source) { m.Load(0, &w.Inner) }

func (p *Pointed) StateTypeName() string                       { return "graph.Pointed" }
func (p *Pointed) StateFields() []string                       { return []string{"To"} }
func (p *Pointed) StateSave(m state.Sink)                      { m.Save(0, &p.To) }
func (p *Pointed) StateLoad(_ context.Context, m state.Source) { m.Load(0, &p.To) }

func (e *Embed) StateTypeName() string                       { return "graph.Embed" }
func (e *Embed) StateFields() []string                       { return []string{"One"} }
func (e *Embed) StateSave(m state.Sink)                      { m.Save(0, &e.One) }
func (e *Embed) StateLoad(_ context.Context, m state.Source) { m.LoadWait(0, &e.One) }

func (k *Key) StateTypeName() string { return "graph.Key" }
func (k *Key) StateFields() []string { return []string{"N", "S"} }
func (k *Key) StateSave(m state.Sink) {
	m.Save(1, &k.S)
	m.Save(0, &k.N)
}

func (k *Key) StateLoad(_ context.Context, m state.Source) {
	m.Load(1, &k.S)
	m.Load(0, &k.N)
}

func (c *Count) StateTypeName() string { return "graph.Count" }
func (c *Count) StateFields() []string { return nil }
func (n *Names) StateTypeName() string { return "graph.Names" }
func (n *Names) StateFields() []string { return nil }

// fields lists the fields of Node by name, in the order of their slots.
func (n *Node) fields() []field {
	return []field{
		{"id", &n.id},
		{"next", &n.next},
		{"prev", &n.prev},
		{"In", &n.In},
		{"Leaves", &n.Leaves},
		{"Wrap", &n.Wrap},
		{"Embed", &n.Embed},
		{"PLeaf", &n.PLeaf},
		{"PInt", &n.PInt},
		{"PHalf", &n.PHalf},
		{"PHalfs", &n.PHalfs},
		{"PIn", &n.PIn},
		{"PWrap", &n.PWrap},
		{"PEmpty", &n.PEmpty},
		{"PNone", &n.PNone},
		{"PP", &n.PP},
		{"PM", &n.PM},
		{"PS", &n.PS},
		{"PI", &n.PI},
		{"value", nil},
		{"made", nil},
		{"Slice", &n.Slice},
		{"Nodes", &n.Nodes},
		{"Bytes", &n.Bytes},
		{"Ints", &n.Ints},
		{"Deep", &n.Deep},
		{"Strs", &n.Strs},
		{"Anys", &n.Anys},
		{"Fixed", &n.Fixed},
		{"Zeros", &n.Zeros},
		{"Halfs", &n.Halfs},
		{"Whole", &n.Whole},
		{"Number", &n.Number},
		{"madePtr", nil},
		{"madeLeaf", nil},
		{"Map", &n.Map},
		{"Structs", &n.Structs},
		{"ByKey", &n.ByKey},
		{"Maps", &n.Maps},
		{"MAny", &n.MAny},
		{"MArr", &n.MArr},
		{"Any", &n.Any},
		{"Shape", &n.Shape},
		{"B", &n.B},
		{"I", &n.I},
		{"I16", &n.I16},
		{"I32", &n.I32},
		{"I64", &n.I64},
		{"U", &n.U},
		{"U8", &n.U8},
		{"U16", &n.U16},
		{"U32", &n.U32},
		{"UP", &n.UP},
		{"F32", &n.F32},
		{"F64", &n.F64},
		{"C64", &n.C64},
		{"C128", &n.C128},
		{"Fs", &n.Fs},
		{"Ss", &n.Ss},
		{"Ms", &n.Ms},
		{"As", &n.As},
		{"Sls", &n.Sls},
		{"waited", nil},
		{"ByNode", &n.ByNode},
		{"ByAny", &n.ByAny},
	}
}

// String names a node that is a key of a map: keys are sorted by what they are called.
func (n *Node) String() string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint("node ", n.id)
}

type field struct {
	name string
	p    any
}

func (n *Node) slot(name string) int {
	return slices.IndexFunc(n.fields(), func(f field) bool { return f.name == name })
}

func (n *Node) StateTypeName() string { return "graph.Node" }
func (n *Node) StateFields() []string {
	var names []string
	for _, f := range new(Node).fields() { // n is nil
		names = append(names, f.name)
	}
	return names
}

// StateSave saves values first, as the code that stateify writes does.
func (n *Node) StateSave(m state.Sink) {
	m.SaveValue(n.slot("madeLeaf"), n.madeLeaf)
	m.SaveValue(n.slot("value"), n.value)
	m.SaveValue(n.slot("made"), append([]string(nil), n.made...))
	m.SaveValue(n.slot("madePtr"), &Leaf{A: 1, S: n.madePtr})
	m.SaveValue(n.slot("waited"), n.waited)
	for i, f := range n.fields() {
		if f.p != nil {
			m.Save(i, f.p)
		}
	}
}

func (n *Node) StateLoad(ctx context.Context, m state.Source) {
	for i, f := range n.fields() {
		switch {
		case f.name == "PLeaf" || f.name == "Any":
			m.LoadWait(i, f.p)
		case f.p != nil:
			m.Load(i, f.p)
		}
	}
	m.LoadValue(n.slot("value"), new(int64), func(v any) { n.value = v.(int64) })
	m.LoadValue(n.slot("made"), new([]string), func(v any) { n.made = v.([]string) })
	m.LoadValue(n.slot("madePtr"), new(*Leaf), func(v any) { n.madePtr = v.(*Leaf).S })
	m.LoadValue(n.slot("madeLeaf"), new(Leaf), func(v any) { n.madeLeaf = v.(Leaf) })
	m.LoadValue(n.slot("waited"), new(*Node), func(v any) { n.waited = v.(*Node) })
	m.AfterLoad(func() {
		if log, ok := ctx.Value(logKey{}).(*Log); ok {
			log.Calls = append(log.Calls, fmt.Sprintf("node %d made %v", n.id, n.made))
		}
	})
}

func init() {
	state.Register((*Leaf)(nil))
	state.Register((*Inner)(nil))
	state.Register((*Empty)(nil))
	state.Register((*Wrapper)(nil))
	state.Register((*Pointed)(nil))
	state.Register((*Embed)(nil))
	state.Register((*Key)(nil))
	state.Register((*Count)(nil))
	state.Register((*Names)(nil))
	state.Register((*Node)(nil))
	state.Register((*Root)(nil))
}

// Root is what is saved.
type Root struct {
	Nodes []*Node
	First *Node
}

func (r *Root) StateTypeName() string { return "graph.Root" }
func (r *Root) StateFields() []string { return []string{"Nodes", "First"} }
func (r *Root) StateSave(m state.Sink) {
	m.Save(0, &r.Nodes)
	m.Save(1, &r.First)
}

func (r *Root) StateLoad(_ context.Context, m state.Source) {
	m.Load(0, &r.Nodes)
	m.Load(1, &r.First)
}

// Save saves a graph.
func Save(r *Root) ([]byte, error) {
	var b bytes.Buffer
	_, err := state.Save(context.Background(), &b, r)
	return b.Bytes(), err
}

// Load loads a graph. It returns the calls of afterLoad, and how many bytes it has not read.
func Load(data []byte) (r *Root, calls []string, rest int, err error) {
	var log Log
	r, rest, err = LoadWith(context.Background(), &log, data)
	return r, log.Calls, rest, err
}

// LoadWith is Load with the values of a context, or with its Await. It notes the calls of afterLoad in log.
func LoadWith(ctx context.Context, log *Log, data []byte) (r *Root, rest int, err error) {
	in := bytes.NewReader(data)
	r = &Root{}
	_, err = state.Load(logged{ctx, log}, in, r)
	return r, in.Len(), err
}

// logged is a context with a log. If the context that it is made of has an Await, it has that, too.
type logged struct {
	context.Context
	log *Log
}

func (l logged) Value(key any) any {
	if key == (logKey{}) {
		return l.log
	}
	return l.Context.Value(key)
}

func (l logged) Await() error {
	if a, ok := l.Context.(interface{ Await() error }); ok {
		return a.Await()
	}
	return nil
}

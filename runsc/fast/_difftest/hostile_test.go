package difftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	fast "gvisor.dev/gvisor/pkg/difftest/fast/graph"
	stock "gvisor.dev/gvisor/pkg/difftest/stock/graph"
	"gvisor.dev/gvisor/pkg/state/wire"
)

// stricter matches errors of ours for streams that gVisor's decoder may load. No encoder writes them.
var stricter = regexp.MustCompile(`nested more than|is too large|an array with \d+ elements cannot be loaded into|` +
	`a map cannot be loaded into`)

// checkHostile compares how any bytes are loaded. Ours may refuse more than gVisor's, for known reasons, and never
// less. It reports whether both load the bytes.
func checkHostile(t *testing.T, data []byte) bool {
	b, callsB, restB, errB := fast.Load(data)
	// If objects wait for each other, gVisor's decoder may look for the cycle until its stack ends.
	if errB != nil && (stricter.MatchString(errB.Error()) || strings.Contains(errB.Error(), "incomplete graph")) {
		return false
	}
	a, callsA, restA, errA := stock.Load(data)
	if errA != nil && strings.Contains(errA.Error(), "beyond what the comparison allows") {
		return false
	}
	if (errA == nil) != (errB == nil) {
		t.Errorf("load by stock: %v\nby fast: %v", errA, errB)
	}
	if errA != nil || errB != nil {
		return false
	}
	if restA != restB {
		t.Errorf("stock leaves %d bytes, fast %d", restA, restB)
	}
	if !slices.Equal(callsA, callsB) {
		t.Errorf("afterLoad: stock %q, fast %q", callsA, callsB)
	}
	againA, errA := stock.Save(a)
	againB, errB := fast.Save(b)
	if (errA == nil) != (errB == nil) {
		t.Errorf("save again by stock: %v, by fast: %v", errA, errB)
	}
	if errA == nil && !bytes.Equal(againA, againB) {
		t.Errorf("saved again, stock and fast have loaded different graphs: %d and %d bytes", len(againA), len(againB))
	}
	return true
}

// valid returns the stream of a random graph.
func valid(seed uint64) []byte {
	data, err := stock.Save(stock.Make(randomData(seed)))
	if err != nil {
		return nil
	}
	return data
}

func FuzzHostile(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(valid(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkHostile(t, data) })
}

// TestHostileBytes alters bytes of streams.
func TestHostileBytes(t *testing.T) {
	alterAll(t, func(r *rand.Rand, data []byte) []byte {
		for range 1 + r.IntN(3) {
			data = alterBytes(r, data)
		}
		return data
	})
}

// TestHostileObjects alters what streams consist of: lengths, IDs, types, references, the order of objects.
func TestHostileObjects(t *testing.T) {
	alterAll(t, func(r *rand.Rand, data []byte) []byte {
		s := parse(data)
		for range 1 + r.IntN(3) {
			s.alter(r)
		}
		return s.format()
	})
}

// alterAll compares how altered streams are loaded.
func alterAll(t *testing.T, alter func(*rand.Rand, []byte) []byte) {
	var all, loaded int
	for seed := range uint64(*graphs) {
		data := valid(seed)
		if len(data) == 0 {
			continue
		}
		for n := range uint64(20) {
			all++
			if checkHostile(t, alter(rand.New(rand.NewPCG(seed, n)), slices.Clone(data))) {
				loaded++
			}
			if t.Failed() {
				t.Fatalf("seed %d, %d", seed, n)
			}
		}
	}
	t.Logf("%d streams, of which both load %d", all, loaded)
}

func alterBytes(r *rand.Rand, data []byte) []byte {
	if len(data) == 0 {
		return data
	}
	at := r.IntN(len(data))
	to := min(len(data), at+1+r.IntN(16))
	switch r.IntN(8) {
	case 0:
		return data[:at]
	case 1:
		data[at] ^= 1 << r.IntN(8)
	case 2:
		data[at] = byte(r.IntN(18)) // a header
	case 3:
		data[at]++
	case 4:
		data[at] = byte(r.Uint32())
	case 5:
		return slices.Delete(data, at, to)
	case 6:
		return slices.Insert(data, r.IntN(len(data)), slices.Clone(data[at:to])...)
	case 7:
		return slices.Replace(data, at, at+1, binary.AppendUvarint(nil, number(r))...)
	}
	return data
}

// number returns a number that may be where another one was.
func number(r *rand.Rand) uint64 {
	return []uint64{
		0, 1, 2, r.Uint64N(20), r.Uint64N(300), 1 << 20, math.MaxUint32, math.MaxUint32 + 1 + r.Uint64N(20), 1 << 40,
		math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, r.Uint64(),
	}[r.IntN(13)]
}

// stream is a stream, taken apart.
type stream struct{ items []wire.Object } // types, and objects each behind its ID

// objectFlag marks the number of objects in the header of a stream.
const objectFlag = 1 << 63

func parse(data []byte) *stream {
	s := &stream{}
	r := wire.Reader{Reader: bytes.NewReader(data)}
	for n := wire.LoadUint(&r) &^ objectFlag; n > 0; {
		o := wire.Load(&r)
		s.items = append(s.items, o)
		if _, ok := o.(*wire.Type); !ok {
			s.items = append(s.items, wire.Load(&r))
			n--
		}
	}
	return s
}

// format writes the stream. What cannot be written ends it.
func (s *stream) format() []byte {
	var b bytes.Buffer
	w := wire.Writer{Writer: &b}
	var ids uint64
	for _, o := range s.items {
		if _, ok := o.(*wire.Type); !ok {
			ids++
		}
	}
	defer func() { _ = recover() }()
	wire.SaveUint(&w, ids/2|objectFlag)
	for _, o := range s.items {
		wire.Save(&w, o)
	}
	return b.Bytes()
}

// places returns where all objects are that are in o.
func places(o *wire.Object, list []*wire.Object) []*wire.Object {
	list = append(list, o)
	switch x := (*o).(type) {
	case *wire.Struct:
		for i := range x.Fields() {
			list = places(x.Field(i), list)
		}
	case *wire.Array:
		for i := range x.Contents {
			list = places(&x.Contents[i], list)
		}
	case *wire.Map:
		for i := range x.Keys {
			list = places(&x.Values[i], places(&x.Keys[i], list))
		}
	case *wire.Interface:
		list = places(&x.Value, list)
	}
	return list
}

func (s *stream) alter(r *rand.Rand) {
	if r.IntN(4) == 0 {
		s.rearrange(r)
		return
	}
	list := places(&s.items[r.IntN(len(s.items))], nil)
	other := places(&s.items[r.IntN(len(s.items))], nil)
	at := list[r.IntN(len(list))]
	switch r.IntN(4) {
	case 0:
		*at = *other[r.IntN(len(other))]
	case 1:
		*at = scalar(r)
	default:
		s.alterObject(r, *at)
	}
}

// rearrange alters which items there are, and their order.
func (s *stream) rearrange(r *rand.Rand) {
	i, j := r.IntN(len(s.items)), r.IntN(len(s.items))
	switch r.IntN(4) {
	case 0:
		s.items[i], s.items[j] = s.items[j], s.items[i]
	case 1:
		s.items = slices.Delete(s.items, i, i+1)
		if len(s.items) == 0 {
			s.items = []wire.Object{wire.Nil{}}
		}
	case 2:
		s.items = slices.Insert(s.items, j, s.items[i])
	case 3:
		if len(s.items) > 3 { // an object and its ID
			i, j = r.IntN(len(s.items)-1), r.IntN(len(s.items)-3)
			pair := slices.Clone(s.items[i : i+2])
			s.items = slices.Insert(slices.Delete(s.items, i, i+2), j, pair...)
		}
	}
}

func scalar(r *rand.Rand) wire.Object {
	text := wire.String("text")
	c64, c128 := wire.Complex64(1), wire.Complex128(complex(math.NaN(), math.MaxFloat64))
	return []wire.Object{
		wire.Nil{},
		wire.Bool(true), wire.Int(-1), wire.Int(number(r)), wire.Uint(number(r)), wire.Float32(1.5),
		wire.Float64(math.MaxFloat64), wire.Float64(0.5), &text, &wire.Ref{Root: wire.Uint(number(r))}, &wire.Ref{},
		&wire.Slice{}, &wire.Array{}, &wire.Map{}, &c64, &c128, &wire.Interface{Type: wire.TypeSpecNil{}, Value: wire.Nil{}},
		&wire.Interface{Type: spec(r, 0), Value: wire.Nil{}}, &wire.Array{Contents: []wire.Object{wire.Nil{}, wire.Nil{}}},
		&wire.Map{Keys: []wire.Object{wire.Nil{}, wire.Nil{}}, Values: []wire.Object{wire.Nil{}, wire.Nil{}}},
	}[r.IntN(20)]
}

// spec returns the specification of some type.
func spec(r *rand.Rand, depth int) wire.TypeSpec {
	if depth < 4 {
		switch r.IntN(8) {
		case 0:
			return &wire.TypeSpecPointer{Type: spec(r, depth+1)}
		case 1:
			return &wire.TypeSpecArray{Count: wire.Uint(number(r)), Type: spec(r, depth+1)}
		case 2:
			return &wire.TypeSpecSlice{Type: spec(r, depth+1)}
		case 3:
			return &wire.TypeSpecMap{Key: spec(r, depth+1), Value: spec(r, depth+1)}
		case 4:
			return wire.TypeSpecNil{}
		}
	}
	return wire.TypeID(r.IntN(14))
}

func (s *stream) alterObject(r *rand.Rand, o wire.Object) {
	switch x := o.(type) {
	case *wire.Ref:
		alterRef(r, x)
	case *wire.Slice:
		switch r.IntN(4) {
		case 0:
			x.Length = wire.Uint(number(r))
		case 1:
			x.Capacity = wire.Uint(number(r))
		case 2:
			x.Length, x.Capacity = x.Capacity, x.Length
		case 3:
			alterRef(r, &x.Ref)
		}
	case *wire.Array:
		if n := len(x.Contents); n > 0 && r.IntN(2) == 0 {
			x.Contents = x.Contents[:r.IntN(n)]
		} else if n > 0 {
			x.Contents = append(x.Contents, x.Contents[0])
		}
	case *wire.Struct:
		x.TypeID = wire.TypeID(number(r))
		if r.IntN(2) == 0 {
			x.TypeID = wire.TypeID(r.IntN(14))
		}
	case *wire.Interface:
		x.Type = spec(r, 0)
	case *wire.Type:
		if n := len(x.Fields); n > 1 {
			i, j := r.IntN(n), r.IntN(n)
			x.Fields[i], x.Fields[j] = x.Fields[j], x.Fields[i]
			if r.IntN(4) == 0 {
				x.Fields = x.Fields[:i]
			}
		}
	}
}

func alterRef(r *rand.Rand, x *wire.Ref) {
	switch r.IntN(4) {
	case 0:
		x.Root = wire.Uint(number(r))
	case 1:
		x.Root = wire.Uint(1 + r.IntN(40))
	case 2:
		x.Dots, x.Type = append(slices.Clone(x.Dots), step(r)), spec(r, 0)
	case 3:
		if len(x.Dots) > 1 {
			x.Dots = x.Dots[1:]
		} else {
			x.Dots, x.Type = []wire.Dot{step(r)}, spec(r, 0)
		}
	}
}

func step(r *rand.Rand) wire.Dot {
	name := wire.FieldName([]string{"In", "L", "Leaves", "One", "next", "X", "none"}[r.IntN(7)])
	return []wire.Dot{wire.Index(r.IntN(5)), wire.Index(number(r)), &name}[r.IntN(3)]
}

// TestHostileNumbers replaces each byte of a stream by large numbers, in short by one of them in turn. Ours must not
// take memory in return.
func TestHostileNumbers(t *testing.T) {
	data := valid(1)
	large := []uint64{1 << 20, 1 << 33, 1 << 40, math.MaxInt64, math.MaxUint64}
	for at := range data {
		numbers := large
		if testing.Short() {
			numbers = large[at%len(large):][:1]
		}
		for _, n := range numbers {
			altered := slices.Replace(slices.Clone(data), at, at+1, binary.AppendUvarint(nil, n)...)
			if got, limit := allocated(func() { fast.Load(altered) }), uint64(300<<20); got > limit {
				t.Fatalf("%d in the place of byte %d: %d bytes were allocated, want at most %d", n, at, got, limit)
			}
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileDepth nests interfaces, types and objects that nothing refers to yet. gVisor's decoder would end with the
// stack.
func TestHostileDepth(t *testing.T) {
	const deep = 20_000 // twice what is allowed
	needle := "the needle in this"
	s := parse(save(t, &stock.Root{First: &stock.Node{Any: needle}}))
	data := s.format()
	text := append([]byte{7, byte(len(needle))}, needle...)
	at := bytes.Index(data, text)
	if at < 3 {
		t.Fatal("the string is not in the stream")
	}
	inside := data[at-3 : at] // the header of an interface, and that its type is a registered one: string
	for name, insert := range map[string][]byte{
		"interfaces": bytes.Repeat(inside, deep),
		"types":      append(bytes.Repeat([]byte{14, 1}, 1), bytes.Repeat([]byte{1}, deep)...),
		"fields":     bytes.Repeat([]byte{11, 1}, deep),
		"lists":      bytes.Repeat([]byte{13, 1}, deep),
	} {
		_, _, _, err := fast.Load(slices.Insert(slices.Clone(data), at, insert...))
		if err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	if _, _, _, err := fast.Load(chain(t, deep)); err == nil || !strings.Contains(err.Error(), "nested more than") {
		t.Errorf("a chain of objects: %.200v", err)
	}
	if _, _, _, err := fast.Load(chain(t, 1000)); err != nil {
		t.Errorf("a short chain is not loaded: %v", err)
	}
}

// chain returns a stream in which each of n nodes comes before the one that refers to it.
func chain(t *testing.T, n int) []byte {
	s := parse(save(t, &stock.Root{First: &stock.Node{}}))
	i := slices.IndexFunc(s.items, func(o wire.Object) bool { return o == wire.Object(wire.Uint(2)) })
	if i < 0 {
		t.Fatal("there is no object 2")
	}
	types, root, node, rest := s.items[:i-2], s.items[i-2:i], s.items[i+1].(*wire.Struct), s.items[i+2:]
	const first = 1000 // the first node has ID 2, and nothing else has one from here on
	items := slices.Clone(types)
	for id := first + n - 1; id >= first; id-- {
		next := wire.Object(&wire.Ref{Root: wire.Uint(id + 1)})
		if id == first+n-1 {
			next = wire.Nil{}
		}
		items = append(items, wire.Uint(id), nodeWith(node, next))
	}
	items = append(items, wire.Uint(2), nodeWith(node, &wire.Ref{Root: first}))
	return (&stream{slices.Concat(items, root, rest)}).format()
}

// nodeWith returns a copy of a node with another next node.
func nodeWith(node *wire.Struct, next wire.Object) *wire.Struct {
	c := &wire.Struct{TypeID: node.TypeID}
	c.Alloc(node.Fields())
	for i := range node.Fields() {
		*c.Field(i) = *node.Field(i)
	}
	*c.Field(1) = next
	return c
}

func save(t *testing.T, r *stock.Root) []byte {
	data, err := stock.Save(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestHostileTruncated loads what is left of streams that are cut off, in short not at each byte.
func TestHostileTruncated(t *testing.T) {
	seeds, step := uint64(20), 1
	if testing.Short() {
		seeds, step = 5, 11
	}
	for seed := range seeds {
		data := valid(seed)
		for n := 0; n < len(data); n += step {
			if _, _, _, err := fast.Load(data[:n]); err == nil {
				t.Fatal(fmt.Sprintf("seed %d: %d of %d bytes are loaded", seed, n, len(data)))
			}
		}
	}
}

package state

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"gvisor.dev/gvisor/pkg/state/wire"
)

// internalCallback is called when an object is complete: userCallback, or an objectDecodeState that has waited for it.
type internalCallback interface {
	// source returns the object that waits, or nil.
	source() *objectDecodeState

	// callbackRun executes the callback.
	callbackRun(ds *decodeState)
}

// userCallback is a function passed to Source.
type userCallback func()

// source implements internalCallback.source.
func (userCallback) source() *objectDecodeState { return nil }

// callbackRun implements internalCallback.callbackRun.
func (uc userCallback) callbackRun(*decodeState) { uc() }

// objectDecodeState is an object that has an ID. It has memory from when it is first referred to. Its contents follow
// when they come in the stream.
type objectDecodeState struct {
	id objectID

	// typ is the type of the struct in the object that was decoded last, for statistics.
	typ typeID

	// p is where the object is. For a map it is a variable of that type.
	p    unsafe.Pointer
	info *typeInfo

	// blockedBy is the number of objects that this one waits for.
	blockedBy int

	// callbacks are called when the object is complete. There is room for the first two.
	callbacks       []internalCallback
	callbacksInline [2]internalCallback

	pendingEntry odsListElem
	leafEntry    odsListElem
}

// odsListElem is an element of odsList.
type odsListElem struct {
	ods *objectDecodeState
	odsEntry
}

// addCallback adds a callback.
func (ods *objectDecodeState) addCallback(ic internalCallback) {
	if ods.callbacks == nil {
		ods.callbacks = ods.callbacksInline[:0]
	}
	ods.callbacks = append(ods.callbacks, ic)
}

// source implements internalCallback.source.
func (ods *objectDecodeState) source() *objectDecodeState { return ods }

// callbackRun implements internalCallback.callbackRun.
func (ods *objectDecodeState) callbackRun(ds *decodeState) {
	ods.blockedBy--
	if ods.blockedBy == 0 {
		ds.leaves.PushBack(&ods.leafEntry)
	} else if ods.blockedBy < 0 {
		Failf("object %d has negative blockedBy: %d", ods.id, ods.blockedBy)
	}
}

// waiting returns the objects that wait for ods.
func (ods *objectDecodeState) waiting() []*objectDecodeState {
	var list []*objectDecodeState
	for _, ic := range ods.callbacks {
		if o := ic.source(); o != nil {
			list = append(list, o)
		}
	}
	return list
}

// decodeState is the state of one Load.
//
// Objects are decoded from the stream into their memory, field by field, with nothing in between. If an object comes
// before any reference to it, its type is not known yet: its encoding is put aside.
type decodeState struct {
	// ctx is the decode context.
	ctx context.Context

	// r is the input stream.
	r wire.Reader

	// in is what is decoded now: the stream, or an object that was put aside.
	in *input

	// types is the type database.
	types typeDecodeDatabase

	// infos has all types that were met, registered or not, and registered those of them with an ID.
	infos      typeCache
	registered []*typeInfo

	// pages have the objects by their IDs. A page is made for the first of its IDs that is referred to: an ID may be any
	// number, and memory is not taken for those below it.
	pages []*objectPage

	// spare is where new objects are taken from.
	spare []objectDecodeState

	// deferred are the encodings of objects that were not referred to yet.
	deferred map[objectID][]byte

	// pending is the set of objects that are not yet complete.
	pending odsList

	// leaves is the set of objects that have no dependencies (blockedBy == 0).
	// leaves are consumed from the front and appended to the back.
	leaves odsList

	// offsets are the places of fields in the input, of all structs that are being decoded.
	offsets []int

	// structs is the number of structs that are being decoded, one in the other, and fields are what is known of each.
	structs int
	fields  []*structFields

	// depth is the number of interfaces, and of objects that were put aside, that are being decoded, one in the other.
	depth int

	// stats tracks time data.
	stats Stats
}

// objectPage has the objects with successive IDs.
type objectPage [1024]*objectDecodeState

// lookup returns the object with that ID, or nil if nothing referred to it yet.
func (ds *decodeState) lookup(id objectID) *objectDecodeState {
	if id == 0 {
		Failf("invalid object ID 0")
	}
	n := int(id) / len(objectPage{})
	if n >= len(ds.pages) || ds.pages[n] == nil {
		return nil
	}
	return ds.pages[n][int(id)%len(objectPage{})]
}

// set puts an object where lookup finds it.
func (ds *decodeState) set(id objectID, ods *objectDecodeState) {
	n := int(id) / len(objectPage{})
	if more := n + 1 - len(ds.pages); more > 0 {
		ds.pages = append(ds.pages, make([]*objectPage, more)...)
	}
	if ds.pages[n] == nil {
		ds.pages[n] = new(objectPage)
	}
	ds.pages[n][int(id)%len(objectPage{})] = ods
}

// checkComplete runs the callbacks of an object that waits for no other.
func (ds *decodeState) checkComplete(ods *objectDecodeState) {
	if ods.blockedBy > 0 {
		return
	}
	if ods.callbacks != nil && ods.typ != 0 {
		ds.stats.start(ods.typ)
		defer ds.stats.done()
	}
	for _, ic := range ods.callbacks {
		ic.callbackRun(ds)
	}
	ods.callbacks = nil
	ds.pending.Remove(&ods.pendingEntry)
}

// wait has waiter wait for the object with that ID, and then callback called, if it is not nil.
//
// As a special case, we always allow _useable_ references back to the first
// decoding object because it may have fields that are already decoded. We also
// allow trivial self reference, since they can be handled internally.
func (ds *decodeState) wait(waiter *objectDecodeState, id objectID, callback func()) {
	if id == waiter.id || id == 1 {
		if callback != nil {
			callback()
		}
		return
	}
	waiter.blockedBy++
	if waiter.blockedBy == 1 {
		ds.leaves.Remove(&waiter.leafEntry)
	}
	other := ds.lookup(id) // it was referred to
	if callback != nil {
		other.addCallback(userCallback(callback))
	}
	other.addCallback(waiter)
}

// waitRoot is wait for what decode has returned. With nothing to wait for, callback is called at once.
func (ds *decodeState) waitRoot(waiter *objectDecodeState, root uint64, callback func()) {
	if root != 0 {
		ds.wait(waiter, objectID(root), callback)
	} else if callback != nil {
		callback()
	}
}

// add adds an object at p.
func (ds *decodeState) add(id objectID, p unsafe.Pointer, info *typeInfo) *objectDecodeState {
	if len(ds.spare) == 0 {
		ds.spare = make([]objectDecodeState, 128)
	}
	ods := &ds.spare[0]
	ds.spare = ds.spare[1:]
	ods.id, ods.p, ods.info = id, p, info
	ods.pendingEntry.ods = ods
	ods.leafEntry.ods = ods
	ds.set(id, ods)
	ds.pending.PushBack(&ods.pendingEntry)
	ds.leaves.PushBack(&ods.leafEntry)
	return ods
}

// reference is a reference as it is on the wire.
type reference struct {
	root uint64
	dots []step

	// spec is where the input has the type of the root. It is there if there are dots.
	spec int
}

// step is one step from the root of a reference to its target: a field, or an element.
type step struct {
	name  string
	index uint32
}

// reference reads a reference.
func (ds *decodeState) reference() reference {
	r := reference{root: ds.in.uint()}
	n := ds.in.uint()
	if n == 0 {
		return r
	}
	for ; n > 0; n-- {
		name, index := ds.in.dot()
		r.dots = append(r.dots, step{string(name), index})
	}
	r.spec = ds.in.pos
	ds.in.skipSpec(0)
	return r
}

// target returns the target of a reference, and its type. If this is the first reference to an object, the object is
// made: of type info, unless the reference says otherwise.
func (ds *decodeState) target(r reference, info *typeInfo) (unsafe.Pointer, *typeInfo) {
	id := objectID(r.root)
	ods := ds.lookup(id)
	if ods == nil {
		if len(r.dots) != 0 {
			pos := ds.in.pos
			ds.in.pos = r.spec
			info = ds.spec(0)
			ds.in.pos = pos
		}
		ods = ds.add(id, ds.infos.alloc(info), info)
		if encoded, ok := ds.deferred[id]; ok {
			delete(ds.deferred, id)
			ds.deeper()
			in := ds.in
			ds.in = &input{buf: encoded}
			ds.decode(ods, ods.p, ods.info)
			ds.in = in
			ds.depth--
		}
	}
	p, info := ods.p, ods.info
	for _, s := range slices.Backward(r.dots) {
		p, info = ds.step(p, info, s)
	}
	return p, info
}

// deeper is called before something is decoded that may be nested without a limit.
func (ds *decodeState) deeper() {
	if ds.depth++; ds.depth > maxDepth {
		Failf("objects are nested more than %d deep", maxDepth)
	}
}

// alloc returns a new, zeroed object.
func (tc typeCache) alloc(info *typeInfo) unsafe.Pointer {
	if info.typ == nil { // the array behind a slice
		elem := info.elem
		if elem.slice == nil {
			elem.slice = reflect.SliceOf(tc.reflected(elem))
		}
		return reflect.MakeSlice(elem.slice, info.length, info.length).UnsafePointer()
	}
	return reflect.New(info.typ).UnsafePointer()
}

// step goes from an object to a part of it.
func (ds *decodeState) step(p unsafe.Pointer, info *typeInfo, s step) (unsafe.Pointer, *typeInfo) {
	switch {
	case s.name == "":
		if info.kind != reflect.Array || int(s.index) >= info.length {
			Failf("a reference leads to element %d of a %v", s.index, info)
		}
		elem := ds.infos.elemOf(info)
		return unsafe.Add(p, uintptr(s.index)*elem.size), elem
	case info.kind != reflect.Struct:
		Failf("a reference leads to field %q of a %v", s.name, info)
	}
	for _, f := range ds.infos.fieldsOf(info) {
		if f.name == s.name {
			return unsafe.Add(p, f.offset), f.info
		}
	}
	// It may be a field of an embedded field.
	f := reflect.NewAt(info.typ, p).Elem().FieldByName(s.name)
	if !f.IsValid() {
		Failf("a reference leads to field %q of a %v, which has none", s.name, info)
	}
	return unsafe.Pointer(f.UnsafeAddr()), ds.infos.of(f.Type())
}

// spec reads the specification of a type.
func (ds *decodeState) spec(depth int) *typeInfo {
	if depth > maxSpecDepth {
		Failf("types are nested more than %d deep", maxSpecDepth)
	}
	switch header := ds.in.uint(); header {
	case specTypeID:
		return ds.typeByID(typeID(ds.in.uint()))
	case specPointer:
		elem := ds.spec(depth + 1)
		if elem.pointer == nil {
			elem.pointer = ds.infos.of(reflect.PointerTo(ds.infos.reflected(elem)))
		}
		return elem.pointer
	case specArray:
		n := ds.in.uint()
		elem := ds.spec(depth + 1)
		checkSize(n, elem)
		return ds.infos.of(reflect.ArrayOf(int(n), ds.infos.reflected(elem)))
	case specSlice:
		return ds.infos.of(reflect.SliceOf(ds.infos.reflected(ds.spec(depth + 1))))
	case specMap:
		key := ds.infos.reflected(ds.spec(depth + 1))
		elem := ds.infos.reflected(ds.spec(depth + 1))
		return ds.infos.of(reflect.MapOf(key, elem))
	default:
		Failf("unknown type specification %d", header)
		panic("unreachable")
	}
}

// maxArray is how large an array may be, in bytes. The stream need not be in proportion: an array of zeros is one byte
// there. No kernel has an array that is nearly as large.
const maxArray = 256 << 20

// checkSize fails for arrays that are too large, or have an impossible number of elements.
func checkSize(n uint64, elem *typeInfo) {
	if n > math.MaxInt || elem.size > 0 && n > uint64(maxArray/elem.size) {
		Failf("an array of %d %v is too large", n, elem)
	}
}

// typeByID returns a registered type.
func (ds *decodeState) typeByID(id typeID) *typeInfo {
	if int(id) < len(ds.registered) && ds.registered[id] != nil {
		return ds.registered[id]
	}
	rte := ds.types.Lookup(id, ds.types.LookupType(id))
	if n := int(id) + 1 - len(ds.registered); n > 0 {
		ds.registered = append(ds.registered, make([]*typeInfo, n)...)
	}
	ds.registered[id] = ds.infos.of(rte.LocalType)
	return ds.registered[id]
}

// objectDecoder decodes the fields of one struct.
type objectDecoder struct {
	ds *decodeState

	// ods is the object that the struct belongs to.
	ods *objectDecodeState

	// order has the index of each field on the wire.
	order []int

	fields *structFields
}

// structFields are the fields of a struct in the input.
type structFields struct {
	info *typeInfo

	// count is their number, or single if there is one that is not in a list. That one is found at every index.
	count uint64

	// first is the index of the first one's place in decodeState.offsets. This many were passed; the input is
	// behind them.
	first, passed int
}

// single is the number of fields of a struct that has one field.
const single = math.MaxUint64

// load is a helper for the public methods on Source.
func (od *objectDecoder) load(slot int, objPtr reflect.Value, wait bool, fn func()) {
	ds, f := od.ds, od.fields
	// The type may have its fields in another order here than on the wire.
	index := od.order[slot]
	if f.count == single {
		index = 0
	} else if uint64(index) >= f.count {
		Failf("field %d of %v is not there: there are %d", index, f.info, f.count)
	}
	info := ds.infos.slotElem(f.info, slot, objPtr.Type())
	var root uint64
	if index < f.passed {
		pos := ds.in.pos
		ds.in.pos = ds.offsets[f.first+index]
		root = ds.decode(od.ods, objPtr.UnsafePointer(), info)
		ds.in.pos = pos
	} else {
		for f.passed < index {
			ds.pass(f)
			ds.in.skip(0)
		}
		ds.pass(f)
		root = ds.decode(od.ods, objPtr.UnsafePointer(), info)
	}
	if wait {
		ds.waitRoot(od.ods, root, fn)
	}
}

// pass notes where the next field is.
func (ds *decodeState) pass(f *structFields) {
	ds.offsets = append(ds.offsets, ds.in.pos)
	f.passed++
}

// afterLoad implements Source.AfterLoad.
func (od *objectDecoder) afterLoad(fn func()) {
	// Queue the local callback; this will execute when all of the above
	// data dependencies have been cleared.
	od.ods.addCallback(userCallback(fn))
}

// decodeStruct decodes a struct into p.
func (ds *decodeState) decodeStruct(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo) {
	id := ds.in.uint()
	f := structFields{info: info, first: len(ds.offsets), count: single}
	pos := ds.in.pos
	switch ds.in.uint() {
	case headerNoObjects:
		f.count = 0
	case headerMultipleObjects:
		if f.count = ds.in.uint(); f.count == single {
			Failf("a struct with an impossible number of fields")
		}
	default:
		ds.in.pos = pos
	}
	if id == 0 {
		// Anonymous empty structs need not be registered.
		if f.count != 0 || info.kind != reflect.Struct || info.typ.NumField() != 0 {
			Failf("empty struct on wire has field mismatch with type %v", info)
		}
		return
	}
	rte := ds.types.Lookup(typeID(id), ds.infos.reflected(info))
	ods.typ = typeID(id)
	ds.stats.startAt(ds.structs, ods.typ)
	ds.structs++
	if info.saverLoader != nil { // not so for some empty structs that are registered
		fields := ds.newFields(f)
		info.at(p).StateLoad(ds.ctx, Source{internal: objectDecoder{ds, ods, rte.FieldOrder, fields}})
		f.passed = fields.passed
	}
	if f.count == single {
		f.count = 1
	}
	for uint64(f.passed) < f.count {
		ds.in.skip(0)
		f.passed++
	}
	ds.offsets = ds.offsets[:f.first]
	ds.structs--
	ds.stats.doneAt(ds.structs)
}

// newFields returns a copy of f that Source may refer to until the struct is decoded.
//
// Precondition: ds.structs is the number of structs that are being decoded, this one included.
func (ds *decodeState) newFields(f structFields) *structFields {
	if ds.structs > len(ds.fields) {
		ds.fields = append(ds.fields, new(structFields))
	}
	fields := ds.fields[ds.structs-1]
	*fields = f
	return fields
}

// decodeMap decodes the contents of a map, which is in the variable at p.
func (ds *decodeState) decodeMap(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo) {
	if info.kind != reflect.Map {
		Failf("a map cannot be loaded into a %v", info)
	}
	ds.makeMap(p, info)
	n := ds.in.uint()
	if n == 0 {
		return
	}
	m := reflect.NewAt(info.typ, p).Elem()
	keyInfo, elemInfo := ds.infos.of(info.typ.Key()), ds.infos.elemOf(info)
	var keyHeader, elemHeader uint64
	var key, elem reflect.Value
	for i := uint64(0); i < n; i++ {
		key, elem = keyInfo.scratch(key), elemInfo.scratch(elem)
		if i == 0 {
			keyHeader = ds.in.uint()
		}
		keyRoot := ds.decodeBody(ods, key.UnsafePointer(), keyInfo, keyHeader)
		if i == 0 {
			elemHeader = ds.in.uint()
		}
		elemRoot := ds.decodeBody(ods, elem.UnsafePointer(), elemInfo, elemHeader)
		ds.waitRoot(ods, keyRoot, nil)
		ds.waitRoot(ods, elemRoot, nil)
		m.SetMapIndex(key.Elem(), elem.Elem())
		if bodiless(keyHeader) && bodiless(elemHeader) {
			break // they are all the same, and nothing limits their number
		}
	}
}

// scratch returns a pointer to a new value: last, if nothing can refer to what was decoded into that, and if there is
// one.
func (ti *typeInfo) scratch(last reflect.Value) reflect.Value {
	if !last.IsValid() || ti.kind == reflect.Struct || ti.kind == reflect.Array || ti.kind == reflect.Interface {
		return reflect.New(ti.typ)
	}
	last.Elem().SetZero()
	return last
}

// makeMap makes a map for the variable at p if it has none.
func (ds *decodeState) makeMap(p unsafe.Pointer, info *typeInfo) {
	if *(*unsafe.Pointer)(p) == nil {
		reflect.NewAt(info.typ, p).Elem().Set(reflect.MakeMap(info.typ))
	}
}

// decodeArray decodes an array into p.
func (ds *decodeState) decodeArray(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo) {
	n := ds.in.uint()
	if info.kind != reflect.Array || n != uint64(info.length) {
		Failf("an array with %d elements cannot be loaded into a %v", n, info)
	}
	if n == 0 {
		return
	}
	elem := ds.infos.elemOf(info)
	header := ds.in.uint()
	if header == headerNil {
		return // nothing to do for each of any number of elements
	}
	if header == headerUint && elem.kind == reflect.Uint8 {
		for i := range unsafe.Slice((*byte)(p), info.length) {
			ds.storeUint(unsafe.Add(p, i), elem, ds.in.uint())
		}
		return
	}
	for i := range info.length {
		ds.waitRoot(ods, ds.decodeBody(ods, unsafe.Add(p, uintptr(i)*elem.size), elem, header), nil)
	}
}

// decodeInterface decodes an interface into p.
func (ds *decodeState) decodeInterface(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo) uint64 {
	ds.deeper()
	defer func() { ds.depth-- }()
	pos := ds.in.pos
	if ds.in.uint() == specNil {
		return ds.decode(ods, p, info)
	}
	ds.in.pos = pos
	inside := ds.spec(0)
	v := reflect.New(ds.infos.reflected(inside))
	root := ds.decode(ods, v.UnsafePointer(), inside)
	reflect.NewAt(ds.infos.reflected(info), p).Elem().Set(v.Elem())
	return root
}

// decodePointer decodes a pointer or a map into p.
func (ds *decodeState) decodePointer(p unsafe.Pointer, info *typeInfo) uint64 {
	r := ds.reference()
	if objectID(r.root) == 0 {
		return r.root
	}
	switch info.kind {
	case reflect.Map:
		// All variables with the same map refer to one that holds it.
		q, target := ds.target(r, info)
		if target.kind != reflect.Map {
			Failf("a %v cannot be loaded into a %v", target, info)
		}
		ds.makeMap(q, target)
		if target == info {
			*(*unsafe.Pointer)(p) = *(*unsafe.Pointer)(q)
		} else { // it may still be assignable
			reflect.NewAt(info.typ, p).Elem().Set(reflect.NewAt(target.typ, q).Elem())
		}
	case reflect.Ptr:
		q, target := ds.target(r, ds.infos.elemOf(info))
		if target == info.elem {
			*(*unsafe.Pointer)(p) = q
		} else { // it may still be assignable
			reflect.NewAt(info.typ, p).Elem().Set(reflect.NewAt(ds.infos.reflected(target), q))
		}
	default:
		Failf("a reference cannot be loaded into a %v", info)
	}
	return r.root
}

// decodeSlice decodes a slice into p.
func (ds *decodeState) decodeSlice(p unsafe.Pointer, info *typeInfo) uint64 {
	length, room := ds.in.uint(), ds.in.uint()
	r := ds.reference()
	if objectID(r.root) == 0 {
		return r.root
	}
	if info.kind != reflect.Slice {
		Failf("a slice cannot be loaded into a %v", info)
	}
	elem := ds.infos.elemOf(info)
	checkSize(room, elem)
	capacity := int(room)
	q, target := ds.target(r, ds.infos.array(elem, capacity))
	if target.kind != reflect.Array || ds.infos.elemOf(target) != elem {
		Failf("a slice of a %v cannot be loaded into a %v", target, info)
	}
	if length > room || capacity > target.length {
		Failf("slice [0:%d:%d] is out of bounds of a %v", length, capacity, target)
	}
	if target.length == 0 {
		q, capacity = dummyPointer, 0
	}
	*(*sliceHeader)(p) = sliceHeader{q, int(length), capacity}
	return r.root
}

// dummyPointer points to what needs no memory.
var dummyPointer = reflect.ValueOf(new(struct{})).UnsafePointer()

// decode decodes an object into p. It returns the ID of the object that a reference in it refers to, or 0. That is what
// to wait for.
func (ds *decodeState) decode(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo) uint64 {
	return ds.decodeBody(ods, p, info, ds.in.uint())
}

// decodeBody is decode for an object whose header was read.
func (ds *decodeState) decodeBody(ods *objectDecodeState, p unsafe.Pointer, info *typeInfo, header uint64) uint64 {
	switch header {
	case headerNil:
		// The value is zero, or is an interface that was given its type.
	case headerRef:
		return ds.decodePointer(p, info)
	case headerBool:
		b := ds.in.uint() == 1
		if info.kind != reflect.Bool {
			Failf("a boolean cannot be loaded into a %v", info)
		}
		*(*bool)(p) = b
	case headerInt:
		ds.storeInt(p, info, ds.in.int())
	case headerUint:
		ds.storeUint(p, info, ds.in.uint())
	case headerFloat32:
		f := math.Float32frombits(uint32(ds.in.uint()))
		reflect.NewAt(ds.infos.reflected(info), p).Elem().SetFloat(float64(f))
	case headerFloat64:
		f, v := ds.float64(), reflect.NewAt(ds.infos.reflected(info), p).Elem()
		v.SetFloat(f)
		if !isFloatEq(v.Float(), f) {
			Failf("floating point number truncated from %v to %v", f, v.Float())
		}
	case headerComplex64:
		re := math.Float32frombits(uint32(ds.in.uint()))
		im := math.Float32frombits(uint32(ds.in.uint()))
		reflect.NewAt(ds.infos.reflected(info), p).Elem().SetComplex(complex128(complex(re, im)))
	case headerComplex128:
		re, im := ds.float64(), ds.float64()
		v := reflect.NewAt(ds.infos.reflected(info), p).Elem()
		v.SetComplex(complex(re, im))
		if c := v.Complex(); !isFloatEq(real(c), re) || !isFloatEq(imag(c), im) {
			Failf("complex number truncated from %v to %v", complex(re, im), c)
		}
	case headerString:
		s := string(ds.in.bytes(ds.in.uint()))
		if info.kind != reflect.String {
			Failf("a string cannot be loaded into a %v", info)
		}
		*(*string)(p) = s
	case headerSlice:
		return ds.decodeSlice(p, info)
	case headerArray:
		ds.decodeArray(ods, p, info)
	case headerStruct:
		ds.decodeStruct(ods, p, info)
	case headerMap:
		ds.decodeMap(ods, p, info)
	case headerInterface:
		return ds.decodeInterface(ods, p, info)
	default:
		Failf("unknown object with header %d for %v", header, info)
	}
	return 0
}

func (ds *decodeState) float64() float64 {
	return math.Float64frombits(ds.in.uint())
}

// isFloatEq determines if x and y represent the same value.
func isFloatEq(x, y float64) bool {
	return x == y || math.IsNaN(x) && math.IsNaN(y)
}

// storeInt stores a signed integer at p.
func (ds *decodeState) storeInt(p unsafe.Pointer, info *typeInfo, x int64) {
	var got int64
	switch info.kind {
	case reflect.Int, reflect.Int64:
		*(*int64)(p) = x
		return
	case reflect.Int8:
		*(*int8)(p) = int8(x)
		got = int64(int8(x))
	case reflect.Int16:
		*(*int16)(p) = int16(x)
		got = int64(int16(x))
	case reflect.Int32:
		*(*int32)(p) = int32(x)
		got = int64(int32(x))
	default:
		Failf("a signed integer cannot be loaded into a %v", info)
	}
	if got != x {
		Failf("signed integer truncated from %v to %v", x, got)
	}
}

// storeUint stores an unsigned integer at p.
func (ds *decodeState) storeUint(p unsafe.Pointer, info *typeInfo, x uint64) {
	var got uint64
	switch info.kind {
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		*(*uint64)(p) = x
		return
	case reflect.Uint8:
		*(*uint8)(p) = uint8(x)
		got = uint64(uint8(x))
	case reflect.Uint16:
		*(*uint16)(p) = uint16(x)
		got = uint64(uint16(x))
	case reflect.Uint32:
		*(*uint32)(p) = uint32(x)
		got = uint64(uint32(x))
	default:
		Failf("an unsigned integer cannot be loaded into a %v", info)
	}
	if got != x {
		Failf("unsigned integer truncated from %v to %v", x, got)
	}
}

// Awaiter is a context whose values come while Load reads objects.
type Awaiter interface {
	// Await is called once all objects are read, before the first callback runs. It returns once the values are there.
	Await() error
}

// Load deserializes the object graph rooted at obj.
//
// This function may panic and should be run in safely().
func (ds *decodeState) Load(obj reflect.Value) {
	ds.infos = make(typeCache)
	ds.deferred = make(map[objectID][]byte)
	patience.begin()
	defer patience.end()
	ds.stats.init()
	defer ds.stats.fini(func(id typeID) string {
		return ds.types.LookupName(id)
	})

	// Add the root object with ID 1.
	ds.add(1, unsafe.Pointer(obj.UnsafeAddr()), ds.infos.of(obj.Type()))

	numObjects, object, err := ReadHeader(&ds.r)
	if err != nil {
		Failf("header error: %w", err)
	}
	if !object {
		Failf("object missing")
	}
	ds.decodeAll(numObjects)
	for id := range ds.deferred {
		Failf("unused deferred object: ID %d; there are %d", id, len(ds.deferred))
	}
	if a, ok := ds.ctx.(Awaiter); ok {
		if err := a.Await(); err != nil {
			Failf("wait before callbacks: %w", err)
		}
	}
	ds.complete()
}

// decodeAll decodes all objects in the stream.
//
// Note that the structure of this decoding loop should match the raw
// decoding loop in state/pretty/pretty.printer.printStream().
func (ds *decodeState) decodeAll(numObjects uint64) {
	in := makeInput(ds.r.Reader)
	ds.in = &in
	var ods *objectDecodeState
	if err := safely(func() {
		for i := uint64(0); i < numObjects; {
			in.release()
			if i%256 == 0 {
				patience.look()
			}
			switch header := in.uint(); header {
			case headerType:
				ds.types.Register(ds.readType())
			case headerUint:
				i++
				id := objectID(in.uint())
				if ods = ds.lookup(id); ods != nil {
					ds.decode(ods, ods.p, ods.info)
				} else {
					start := in.pos
					in.skip(0)
					ds.deferred[id] = bytes.Clone(in.buf[start:in.pos])
				}
				ods = nil
			default:
				Failf("wanted type or object ID, got header %d", header)
			}
		}
		in.finish()
	}); err != nil {
		if ods != nil {
			Failf("error decoding object ID %d of type %v: %w", ods.id, ods.info, err)
		}
		Failf("general decoding error: %w", err)
	}
}

// readType reads a type.
func (ds *decodeState) readType() *wire.Type {
	t := wire.Type{Name: string(ds.in.bytes(ds.in.uint()))}
	for n := ds.in.uint(); n > 0; n-- {
		t.Fields = append(t.Fields, string(ds.in.bytes(ds.in.uint())))
	}
	return &t
}

// complete runs all callbacks, those of an object after those of the objects that it waits for.
func (ds *decodeState) complete() {
	var ods *objectDecodeState
	if err := safely(func() {
		for elem := ds.leaves.Front(); elem != nil; elem = elem.Next() {
			ods = elem.ods
			ds.checkComplete(ods)
		}
	}); err != nil {
		Failf("error executing callbacks: %w\nfor object %#v", err,
			reflect.NewAt(ds.infos.reflected(ods.info), ods.p).Elem().Interface())
	}
	if elem := ds.pending.Front(); elem != nil {
		Failf("incomplete graph: %s", dependencyCycle(elem.ods))
	}
}

// dependencyCycle describes objects that wait for each other. Some of them wait for ods, directly or not.
func dependencyCycle(ods *objectDecodeState) string {
	var (
		path []*objectDecodeState
		seen = make(map[*objectDecodeState]bool)
	)
	for ods != nil && !seen[ods] {
		seen[ods] = true
		path = append(path, ods)
		next := ods.waiting()
		ods = nil
		if len(next) > 0 {
			ods = next[0]
		}
	}
	var buf bytes.Buffer
	buf.WriteString("dependency cycle: {")
	for i, o := range path {
		if i > 0 {
			buf.WriteString(" => ")
		}
		fmt.Fprintf(&buf, "%q", o.info)
	}
	buf.WriteString("}")
	return buf.String()
}

// ReadHeader reads an object header.
//
// Each object written to the statefile is prefixed with a header. See
// WriteHeader for more information; these functions are exported to allow
// non-state writes to the file to play nice with debugging tools.
func ReadHeader(r *wire.Reader) (length uint64, object bool, err error) {
	err = safely(func() {
		length = wire.LoadUint(r)
	})
	if err != nil {
		// On the header, pass raw I/O errors.
		if sErr, ok := err.(*ErrState); ok {
			return 0, false, sErr.Unwrap()
		}
	}

	// Decode whether the object is valid.
	object = length&objectFlag != 0
	length &^= objectFlag
	return
}

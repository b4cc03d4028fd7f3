package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"gvisor.dev/gvisor/pkg/state/wire"
)

// encodeState is the state of one Save.
//
// Objects are encoded into one buffer, in the order in which they are met. A reference cannot be encoded at once: an
// object may turn out to be part of a larger one that is met later. So the buffer has gaps, see fixup, which are
// filled when all objects are known and the buffer is written.
type encodeState struct {
	// ctx is the encode context.
	ctx context.Context

	// w is the output stream.
	w wire.Writer

	// types is the type database.
	types typeEncodeDatabase

	// infos has all types that were met, registered or not.
	infos typeCache

	// pendingTypes are the registered types in the order of their IDs.
	pendingTypes []wire.Type

	// index finds objects by their addresses.
	index addressIndex

	// zeroSized are objects that occupy no address of their own, one for each type.
	zeroSized map[*typeInfo]*encodedObject

	// objects has the object of each ID, at index ID-1. It is nil for objects that became parts of larger ones.
	objects []*encodedObject

	// queue has all objects in the order in which they were met, next is the first that is not encoded yet.
	queue []*encodedObject
	next  int

	// spare is where new objects are taken from.
	spare []encodedObject

	// buf has the encoding of all objects, fixups its gaps in the order of their offsets.
	buf    []byte
	fixups fixupList

	// spliced are the regions that fixups refer to, and paths the ways to the targets of references.
	spliced []region
	paths   [][]wire.Dot

	// frames are the structs that are being encoded, the innermost last.
	frames []structFrame

	// early are fields that were saved before their turn, of all frames.
	early []earlyField

	// elements lists the structs that are elements of arrays, of all objects that are arrays.
	elements []encodedStruct

	// array is set if the current object is an array.
	array bool

	// again has the structs in the current object that were encoded before, as objects of their own or elements of
	// such objects, in the order of their addresses. StateSave must not be called twice: it may save values that it
	// makes, which would be new objects each time.
	again []encodedStruct

	// values has the structs that had no addresses: those in interfaces, in maps and passed to Sink.SaveValue.
	values map[reflect.Value]region

	// out is what is on its way to w.
	out []byte

	// stats tracks time data.
	stats Stats
}

// encodedObject is an object that has an ID, or had one before it became part of a larger object.
type encodedObject struct {
	// p is the object's address, or what a map variable holds. It also keeps the object from being collected, so
	// that its address stays its own.
	p    unsafe.Pointer
	info *typeInfo

	// parent is the larger object, if there is one, and dots leads from there to this object.
	parent *encodedObject
	dots   []wire.Dot

	// parts are smaller objects that became part of this one.
	parts []*encodedObject

	// encoding is where it is in the buffer, once encoded is set.
	encoding region

	// elements and elementsEnd say which structs in encodeState.elements belong to it.
	elements, elementsEnd int

	id      objectID
	encoded bool

	// contents is set for what a map variable refers to.
	contents bool
}

// region is a part of the buffer, with its fixups.
type region struct {
	start, end        int
	fixups, fixupsEnd int
}

// fixup is a gap in the buffer. With an object, the gap takes a reference to it. Otherwise it takes a region, or
// leaves one out.
type fixup struct {
	// offset is where the gap is.
	offset int

	// object is what is referred to.
	object *encodedObject

	// index is an index of encodeState.paths if there is an object, and it is not 0: that path leads from the object
	// to the target. Without an object, it is an index of encodeState.spliced. If the region begins at this fixup, it
	// is left out here: it comes later. Otherwise it is put in.
	index int
}

// fixupList is a list of fixups. It never moves them.
type fixupList struct {
	chunks []*[fixupChunk]fixup
	length int
}

// fixupChunk is how many fixups are allocated at once.
const fixupChunk = 1024

func (l *fixupList) add(f fixup) {
	if l.length == len(l.chunks)*fixupChunk {
		l.chunks = append(l.chunks, new([fixupChunk]fixup))
	}
	*l.at(l.length) = f
	l.length++
}

func (l *fixupList) at(i int) *fixup {
	return &l.chunks[i/fixupChunk][i%fixupChunk]
}

// structFrame is a struct that is being encoded.
type structFrame struct {
	info   *typeInfo
	fields int

	// next is the field that comes next in the buffer.
	next int

	// early is the number of fields in encodeState.early that belong to structs further out.
	early int
}

// earlyField is a field that was saved before its turn, and where it is in the buffer.
type earlyField struct {
	slot, splice int
}

// encodedStruct is a struct in memory and its encoding, without the header.
type encodedStruct struct {
	p    unsafe.Pointer
	info *typeInfo
	region
}

// encodeStrategy says how a value is encoded.
type encodeStrategy int

const (
	// encodeDefault means that zero values are left out.
	encodeDefault encodeStrategy = iota

	// encodeAsValue means that zero values are encoded, too. All elements of an array need the same header.
	encodeAsValue
)

// dummyAddr is the address of objects that need no memory.
var dummyAddr = uintptr(dummyPointer)

// The headers of objects on the wire, see package wire.
const (
	headerBool = iota
	headerInt
	headerUint
	headerFloat32
	headerFloat64
	headerNil
	headerRef
	headerString
	headerSlice
	headerArray
	headerMap
	headerStruct
	headerNoObjects
	headerMultipleObjects
	headerInterface
	headerComplex64
	headerComplex128
	headerType
)

// The headers of type specifications on the wire, see package wire.
const (
	specTypeID = iota
	specPointer
	specArray
	specSlice
	specMap
	specNil
)

// newObject returns an object that is queued for encoding. ID 0 gets the next ID.
func (es *encodeState) newObject(p unsafe.Pointer, info *typeInfo, id objectID) *encodedObject {
	if len(es.spare) == 0 {
		es.spare = make([]encodedObject, 128)
	}
	o := &es.spare[0]
	es.spare = es.spare[1:]
	if id == 0 {
		es.objects = append(es.objects, nil)
		id = objectID(len(es.objects))
	}
	o.p, o.info, o.id = p, info, id
	es.objects[id-1] = o
	es.queue = append(es.queue, o)
	return o
}

// refer appends a reference to object, or to the part of it that dots leads to.
func (es *encodeState) refer(object *encodedObject, dots []wire.Dot) {
	f := fixup{offset: len(es.buf), object: object}
	if len(dots) != 0 {
		f.index = len(es.paths)
		es.paths = append(es.paths, dots)
	}
	es.fixups.add(f)
}

// resolveMap appends a reference to the map p.
func (es *encodeState) resolveMap(p unsafe.Pointer, info *typeInfo) {
	// Nothing can point into a map, so its first byte stands for all of it.
	addr := uintptr(p)
	e, ok := es.index.first(addr, addr+1)
	if !ok {
		e = addressEntry{start: addr, end: addr + 1, object: es.newObject(p, info, 0)}
		e.object.contents = true
		es.index.insert(e)
	} else if e.object.info != info {
		Failf("overlapping map objects at 0x%x: [new object] %v [existing object type] %v", addr, info, e.object.info)
	}
	es.refer(e.object, nil)
}

// resolve appends a reference to the object of type info at p, which is not nil.
func (es *encodeState) resolve(p unsafe.Pointer, info *typeInfo) {
	addr := uintptr(p)
	size := info.size
	if size == 0 {
		if addr == dummyAddr {
			o, ok := es.zeroSized[info]
			if !ok {
				o = es.newObject(p, info, 0)
				es.zeroSized[info] = o
			}
			es.refer(o, nil)
			return
		}
		// It is part of a larger object, or has a byte behind one.
		size = 1
	}

	end := addr + size
	e, ok := es.index.first(addr, end)
	if !ok {
		o := es.newObject(p, info, 0)
		es.index.insert(addressEntry{start: addr, end: end, object: o})
		es.refer(o, nil)
		return
	}
	same := e.start == addr && e.end == end
	if same && e.object.info == info {
		es.refer(e.object, nil)
		return
	}
	if e.start <= addr && end <= e.end && (!same || es.hasPart(e.object.info, info)) {
		dots := es.traverse(e.object.info, info, e.start, addr)
		es.register(e.object.info)
		es.refer(e.object, dots)
		return
	}
	es.refer(es.absorb(e, p, info, end), nil)
}

// absorb returns a new object that contains first, and all others up to end.
func (es *encodeState) absorb(first addressEntry, p unsafe.Pointer, info *typeInfo, end uintptr) *encodedObject {
	addr := uintptr(p)
	var parts []addressEntry
	for e, ok := first, true; ok; e, ok = es.index.first(addr, end) {
		if raceEnabled && (e.start < addr || end < e.end) {
			Failf("containing object of type %v does not contain existing object of type %v", info, e.object.info)
		}
		es.index.remove(e)
		es.objects[e.object.id-1] = nil
		parts = append(parts, e)
	}
	o := es.newObject(p, info, first.object.id)
	es.register(info)
	for _, e := range parts {
		e.object.dots = es.traverse(info, e.object.info, addr, e.start)
		e.object.parent = o
		o.parts = append(append(o.parts, e.object), e.object.parts...)
	}
	es.index.insert(addressEntry{start: addr, end: end, object: o})
	return o
}

// meetAgain has the structs of o that were encoded before found in their places.
func (es *encodeState) meetAgain(o *encodedObject) {
	es.again = es.again[:0]
	for _, part := range o.parts {
		switch {
		case !part.encoded:
		case part.info.kind == reflect.Struct:
			r := part.encoding
			r.start++ // the header
			es.again = append(es.again, encodedStruct{part.p, part.info, r})
		default:
			es.again = append(es.again, es.elements[part.elements:part.elementsEnd]...)
		}
	}
	slices.SortFunc(es.again, func(a, b encodedStruct) int {
		return cmp.Compare(uintptr(a.p), uintptr(b.p))
	})
}

// encodedBefore returns the encoding of the struct at p, if it was encoded before.
func (es *encodeState) encodedBefore(p unsafe.Pointer, info *typeInfo) (region, bool) {
	i, _ := slices.BinarySearchFunc(es.again, uintptr(p), func(s encodedStruct, addr uintptr) int {
		return cmp.Compare(uintptr(s.p), addr)
	})
	for ; i < len(es.again) && es.again[i].p == p; i++ {
		if es.again[i].info == info {
			return es.again[i].region, true
		}
	}
	return region{}, false
}

// hasPart reports whether an object of type part may be a field of one of type whole that occupies the same memory.
func (es *encodeState) hasPart(whole, part *typeInfo) bool {
	switch whole.kind {
	case reflect.Struct:
		// Fields of size zero may stand before the one in question, so all have to be looked at.
		for _, f := range es.infos.fieldsOf(whole) {
			if f.info == part || es.hasPart(f.info, part) {
				return true
			}
		}
	case reflect.Array:
		// Either there is only one element, or part is of size zero and all elements are as good.
		return whole.length > 0 && es.hasPart(es.infos.elemOf(whole), part)
	}
	return false
}

// traverse returns the way from an object to a part of it, the last step first.
//
// Precondition: the target lies inside the root.
func (es *encodeState) traverse(root, target *typeInfo, rootAddr, targetAddr uintptr) []wire.Dot {
	if root == target && rootAddr == targetAddr {
		return nil
	}
	offset := targetAddr - rootAddr
	switch root.kind {
	case reflect.Struct:
		fields := es.infos.fieldsOf(root)
		for i := len(fields) - 1; i >= 0; i-- {
			if f := &fields[i]; f.offset <= offset {
				return append(es.traverse(f.info, target, rootAddr+f.offset, targetAddr), (*wire.FieldName)(&f.name))
			}
		}
		Failf("no field in root type %v contains target type %v", root, target)
	case reflect.Array:
		elem := es.infos.elemOf(root)
		n := offset / elem.size
		if n > uintptr(root.length) {
			Failf("traversal target of type %v @%x is beyond the end of the array type %v @%x with %v elements",
				target, targetAddr, root, rootAddr, root.length)
		}
		return append(es.traverse(elem, target, rootAddr+n*elem.size, targetAddr), wire.Index(n))
	default:
		Failf("traverse failed for root type %v and target type %v", root, target)
	}
	panic("unreachable")
}

// lookup returns the entry of a type, which is registered if need be, or nil if it cannot be registered.
func (es *encodeState) lookup(info *typeInfo) *typeEntry {
	if info.entry == nil && !info.unknown {
		var known bool
		if info.typ != nil { // the type of an array behind a slice has no name, so it cannot be registered
			info.entry, known = es.types.Lookup(info.typ)
		}
		switch {
		case info.entry == nil:
			info.unknown = true
		case !known:
			es.pendingTypes = append(es.pendingTypes, info.entry.Type)
		}
	}
	return info.entry
}

// register registers all registered types that a type is made of, outside in.
func (es *encodeState) register(info *typeInfo) {
	if es.lookup(info) != nil {
		return
	}
	switch info.kind {
	case reflect.Ptr, reflect.Slice, reflect.Array:
		es.register(es.infos.elemOf(info))
	case reflect.Map:
		es.register(es.infos.of(info.typ.Key()))
		es.register(es.infos.elemOf(info))
	default:
		// After potentially chasing many pointers, the ultimate type of the object is not known.
		Failf("type %q is not known", info.typ)
	}
}

// appendSpec appends the specification of a type.
func (es *encodeState) appendSpec(b []byte, info *typeInfo) []byte {
	if te := es.lookup(info); te != nil {
		return binary.AppendUvarint(append(b, specTypeID), uint64(te.ID))
	}
	switch info.kind {
	case reflect.Ptr:
		return es.appendSpec(append(b, specPointer), es.infos.elemOf(info))
	case reflect.Slice:
		return es.appendSpec(append(b, specSlice), es.infos.elemOf(info))
	case reflect.Array:
		return es.appendSpec(binary.AppendUvarint(append(b, specArray), uint64(info.length)), es.infos.elemOf(info))
	case reflect.Map:
		b = es.appendSpec(append(b, specMap), es.infos.of(info.typ.Key()))
		return es.appendSpec(b, es.infos.elemOf(info))
	}
	Failf("type %q is not known", info.typ)
	panic("unreachable")
}

// objectEncoder encodes the fields of one struct.
type objectEncoder struct {
	es *encodeState

	// frame is an index of encodeState.frames.
	frame int
}

// save is called by the public methods on Sink.
func (oe *objectEncoder) save(slot int, obj reflect.Value) {
	es := oe.es
	f := &es.frames[oe.frame]
	if f.fields == 1 {
		slot = 0
	}
	info := es.infos.slot(f.info, slot, obj.Type())
	if slot == f.next {
		es.encodeField(obj, info)
		es.advance(oe.frame)
		return
	}
	twice := slices.ContainsFunc(es.early[f.early:], func(e earlyField) bool { return e.slot == slot })
	if twice || slot < f.next || slot >= f.fields {
		Failf("field %d of %v is saved twice, or does not exist", slot, f.info)
	}
	// The field has to wait for its turn. It stays where it is, but is left out there.
	splice := len(es.spliced)
	es.spliced = append(es.spliced, region{})
	es.include(splice)
	r := es.begin()
	es.encodeField(obj, info)
	es.spliced[splice] = es.finish(r)
	es.early = append(es.early, earlyField{slot: slot, splice: splice})
}

// encodeField encodes what was passed to Sink.
func (es *encodeState) encodeField(obj reflect.Value, info *typeInfo) {
	if obj.CanAddr() {
		es.encode(unsafe.Pointer(obj.UnsafeAddr()), info, encodeDefault, true)
	} else {
		es.encodeValue(obj, info, encodeDefault, true)
	}
}

// advance goes on to the next field. Fields that were early are put in.
func (es *encodeState) advance(frame int) {
	f := &es.frames[frame]
	f.next++
	for i := f.early; i < len(es.early); i++ {
		if e := es.early[i]; e.slot == f.next {
			es.include(e.splice)
			f.next++
			i = f.early - 1
		}
	}
}

// include puts a region in.
func (es *encodeState) include(splice int) {
	es.fixups.add(fixup{offset: len(es.buf), index: splice})
}

// includeRegion puts a region in.
func (es *encodeState) includeRegion(r region) {
	es.spliced = append(es.spliced, r)
	es.include(len(es.spliced) - 1)
}

// begin begins a region here.
func (es *encodeState) begin() region {
	return region{start: len(es.buf), fixups: es.fixups.length}
}

// finish ends a region here.
func (es *encodeState) finish(r region) region {
	r.end, r.fixupsEnd = len(es.buf), es.fixups.length
	return r
}

// encodeStruct encodes the struct at p.
func (es *encodeState) encodeStruct(p unsafe.Pointer, info *typeInfo) {
	if len(es.again) != 0 {
		if r, ok := es.encodedBefore(p, info); ok {
			es.includeRegion(r)
			return
		}
	}
	r := es.begin()
	es.encodeFields(p, info)
	if len(es.frames) == 0 && es.array {
		es.elements = append(es.elements, encodedStruct{p, info, es.finish(r)})
	}
}

// encodeStructValue encodes a struct that has no address.
func (es *encodeState) encodeStructValue(v reflect.Value, info *typeInfo) {
	if r, ok := es.values[v]; ok {
		es.includeRegion(r)
		return
	}
	r := es.begin()
	c := reflect.New(info.typ)
	c.Elem().Set(v)
	es.encodeFields(c.UnsafePointer(), info)
	es.values[v] = es.finish(r)
}

// encodeFields encodes the type and the fields of the struct at p.
func (es *encodeState) encodeFields(p unsafe.Pointer, info *typeInfo) {
	te := es.lookup(info)
	if te == nil {
		if info.typ.NumField() == 0 {
			// Anonymous empty structs need not be registered. In an interface they could not be loaded.
			es.buf = append(es.buf, 0, headerNoObjects)
			return
		}
		Failf("struct %v does not implement SaverLoader", info)
	}
	es.appendUint(uint64(te.ID))
	n := len(te.Fields)
	switch n {
	case 0:
		es.buf = append(es.buf, headerNoObjects)
	case 1: // the field stands for itself
	default:
		es.buf = append(es.buf, headerMultipleObjects)
		es.appendUint(uint64(n))
	}

	frame := len(es.frames)
	es.stats.startAt(frame, te.ID)
	early := len(es.early)
	es.frames = append(es.frames, structFrame{info: info, fields: n, early: early})
	if info.saverLoader != nil { // not so for some empty structs that are registered
		info.at(p).StateSave(Sink{internal: objectEncoder{es: es, frame: frame}})
	}
	if next := es.frames[frame].next; next != n {
		Failf("field %d of %v was not saved", next, info)
	}
	es.frames = es.frames[:frame]
	es.early = es.early[:early]
	es.stats.doneAt(frame)
}

// encodeMap encodes the contents of a map.
func (es *encodeState) encodeMap(m reflect.Value, info *typeInfo) {
	n := m.Len()
	es.buf = append(es.buf, headerMap)
	es.appendUint(uint64(n))
	if n == 0 {
		return
	}
	keyInfo, elemInfo := es.infos.of(info.typ.Key()), es.infos.elemOf(info)
	header := true // that of the first key and the first value holds for all
	for entries := m.MapRange(); entries.Next(); {
		es.encodeValue(entries.Key(), keyInfo, encodeAsValue, header)
		es.encodeValue(entries.Value(), elemInfo, encodeAsValue, header)
		header = false
	}
}

// encodeArray encodes the array at p.
func (es *encodeState) encodeArray(p unsafe.Pointer, info *typeInfo) {
	es.appendUint(uint64(info.length))
	if info.length == 0 {
		return
	}
	elem := es.infos.elemOf(info)
	if elem.kind == reflect.Uint8 {
		es.buf = append(es.buf, headerUint)
		for _, b := range unsafe.Slice((*byte)(p), info.length) {
			if b < 0x80 {
				es.buf = append(es.buf, b)
			} else {
				es.buf = append(es.buf, b, 1)
			}
		}
		return
	}
	es.encode(p, elem, encodeAsValue, true)
	for i := 1; i < info.length; i++ {
		es.encode(unsafe.Add(p, uintptr(i)*elem.size), elem, encodeAsValue, false)
	}
}

// encodeArrayValue encodes an array that has no address.
func (es *encodeState) encodeArrayValue(v reflect.Value, info *typeInfo) {
	es.appendUint(uint64(info.length))
	for i := range info.length {
		es.encodeValue(v.Index(i), es.infos.elemOf(info), encodeAsValue, i == 0)
	}
}

// encodeInterface encodes an interface.
func (es *encodeState) encodeInterface(v reflect.Value, info *typeInfo) {
	v = v.Elem()
	if !v.IsValid() {
		es.buf = append(es.buf, specNil, headerNil)
		return
	}
	inside := es.infos.inside(info, v.Type())
	es.buf = es.appendSpec(es.buf, inside)
	es.encodeValue(v, inside, encodeAsValue, true)
}

func (es *encodeState) appendUint(u uint64) {
	if u < 0x80 {
		es.buf = append(es.buf, byte(u))
		return
	}
	es.buf = binary.AppendUvarint(es.buf, u)
}

func (es *encodeState) appendInt(i int64) {
	u := uint64(i) << 1
	if i < 0 {
		u = ^u
	}
	es.appendUint(u)
}

func (es *encodeState) appendFloat32(f float64) {
	es.appendUint(uint64(math.Float32bits(float32(f))))
}

func (es *encodeState) appendFloat64(f float64) {
	es.appendUint(math.Float64bits(f))
}

// header appends the header of an object, if it needs one.
func (es *encodeState) header(h byte, wanted bool) {
	if wanted {
		es.buf = append(es.buf, h)
	}
}

// encodePointer encodes a pointer.
func (es *encodeState) encodePointer(p unsafe.Pointer, info *typeInfo, header bool) {
	es.header(headerRef, header)
	if p == nil {
		es.buf = append(es.buf, 0, 0) // no object, no dots
		return
	}
	es.resolve(p, es.infos.elemOf(info))
}

// encodeSlice encodes a slice.
func (es *encodeState) encodeSlice(p unsafe.Pointer, length, capacity int, info *typeInfo, header bool) {
	es.header(headerSlice, header)
	if p == nil {
		es.buf = append(es.buf, 0, 0, 0, 0) // length, capacity, no object, no dots
		return
	}
	es.appendUint(uint64(length))
	es.appendUint(uint64(capacity))
	es.resolve(p, es.infos.array(es.infos.elemOf(info), capacity))
}

// encode encodes the value at p, with or without its header.
func (es *encodeState) encode(p unsafe.Pointer, info *typeInfo, how encodeStrategy, header bool) {
	if how == encodeDefault && info.isZero(p) {
		es.header(headerNil, header)
		return
	}
	switch info.kind {
	case reflect.Ptr:
		es.encodePointer(*(*unsafe.Pointer)(p), info, header)
	case reflect.Bool:
		es.header(headerBool, header)
		es.buf = append(es.buf, *(*byte)(p))
	case reflect.Int:
		es.header(headerInt, header)
		es.appendInt(int64(*(*int)(p)))
	case reflect.Int8:
		es.header(headerInt, header)
		es.appendInt(int64(*(*int8)(p)))
	case reflect.Int16:
		es.header(headerInt, header)
		es.appendInt(int64(*(*int16)(p)))
	case reflect.Int32:
		es.header(headerInt, header)
		es.appendInt(int64(*(*int32)(p)))
	case reflect.Int64:
		es.header(headerInt, header)
		es.appendInt(*(*int64)(p))
	case reflect.Uint:
		es.header(headerUint, header)
		es.appendUint(uint64(*(*uint)(p)))
	case reflect.Uint8:
		es.header(headerUint, header)
		es.appendUint(uint64(*(*uint8)(p)))
	case reflect.Uint16:
		es.header(headerUint, header)
		es.appendUint(uint64(*(*uint16)(p)))
	case reflect.Uint32:
		es.header(headerUint, header)
		es.appendUint(uint64(*(*uint32)(p)))
	case reflect.Uint64:
		es.header(headerUint, header)
		es.appendUint(*(*uint64)(p))
	case reflect.Uintptr:
		es.header(headerUint, header)
		es.appendUint(uint64(*(*uintptr)(p)))
	case reflect.String:
		s := *(*string)(p)
		es.header(headerString, header)
		es.appendUint(uint64(len(s)))
		es.buf = append(es.buf, s...)
	case reflect.Slice:
		s := (*sliceHeader)(p)
		es.encodeSlice(s.data, s.length, s.capacity, info, header)
	case reflect.Array:
		es.header(headerArray, header)
		es.encodeArray(p, info)
	case reflect.Struct:
		es.header(headerStruct, header)
		es.encodeStruct(p, info)
	case reflect.Map:
		es.encodeMapReference(*(*unsafe.Pointer)(p), info, header)
	case reflect.Interface:
		es.header(headerInterface, header)
		es.encodeInterface(reflect.NewAt(info.typ, p).Elem(), info)
	default:
		es.encodeValue(reflect.NewAt(info.typ, p).Elem(), info, how, header)
	}
}

// sliceHeader is a slice in memory.
type sliceHeader struct {
	data             unsafe.Pointer
	length, capacity int
}

// encodeMapReference encodes a map as a reference.
func (es *encodeState) encodeMapReference(p unsafe.Pointer, info *typeInfo, header bool) {
	es.header(headerRef, header)
	if p == nil {
		es.buf = append(es.buf, 0, 0) // no object, no dots
		return
	}
	es.resolveMap(p, info)
}

// encodeValue is encode for values that have no address, and for types that are rare.
func (es *encodeState) encodeValue(v reflect.Value, info *typeInfo, how encodeStrategy, header bool) {
	if how == encodeDefault {
		if info.zero == zeroFails {
			Failf("unknown type %q", info.typ.Name())
		}
		if info.zero != zeroNever && v.IsZero() {
			es.header(headerNil, header)
			return
		}
	}
	switch info.kind {
	case reflect.Ptr:
		es.encodePointer(v.UnsafePointer(), info, header)
	case reflect.Bool:
		es.header(headerBool, header)
		if v.Bool() {
			es.appendUint(1)
		} else {
			es.appendUint(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		es.header(headerInt, header)
		es.appendInt(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		es.header(headerUint, header)
		es.appendUint(v.Uint())
	case reflect.Float32:
		es.header(headerFloat32, header)
		es.appendFloat32(v.Float())
	case reflect.Float64:
		es.header(headerFloat64, header)
		es.appendFloat64(v.Float())
	case reflect.Complex64:
		es.header(headerComplex64, header)
		es.appendFloat32(real(v.Complex()))
		es.appendFloat32(imag(v.Complex()))
	case reflect.Complex128:
		es.header(headerComplex128, header)
		es.appendFloat64(real(v.Complex()))
		es.appendFloat64(imag(v.Complex()))
	case reflect.String:
		es.header(headerString, header)
		es.appendUint(uint64(v.Len()))
		es.buf = append(es.buf, v.String()...)
	case reflect.Slice:
		es.encodeSlice(v.UnsafePointer(), v.Len(), v.Cap(), info, header)
	case reflect.Array:
		es.header(headerArray, header)
		es.encodeArrayValue(v, info)
	case reflect.Struct:
		es.header(headerStruct, header)
		es.encodeStructValue(v, info)
	case reflect.Map:
		es.encodeMapReference(v.UnsafePointer(), info, header)
	case reflect.Interface:
		es.header(headerInterface, header)
		es.encodeInterface(v, info)
	default:
		Failf("unknown object %#v", v.Interface())
	}
}

// encodeObject encodes an object that has an ID.
func (es *encodeState) encodeObject(o *encodedObject) {
	if free := cap(es.buf) - len(es.buf); free < 4096 {
		es.buf = slices.Grow(es.buf, max(cap(es.buf), 64<<10)) // append grows by less, and copies more
	}
	es.meetAgain(o)
	es.array = o.info.kind == reflect.Array
	o.elements = len(es.elements)
	r := es.begin()
	if o.contents {
		es.encodeMap(reflect.NewAt(o.info.typ, unsafe.Pointer(&o.p)).Elem(), o.info)
	} else {
		es.encode(o.p, o.info, encodeDefault, true)
	}
	o.encoding, o.elementsEnd, o.encoded = es.finish(r), len(es.elements), true
}

// Save serializes the object graph rooted at obj.
func (es *encodeState) Save(obj reflect.Value) {
	es.infos = make(typeCache)
	es.index = makeAddressIndex()
	es.zeroSized = make(map[*typeInfo]*encodedObject)
	es.paths = make([][]wire.Dot, 1) // index 0 stands for no path
	es.values = make(map[reflect.Value]region)
	patience.begin()
	defer patience.end()
	es.stats.init()
	defer es.stats.fini(func(id typeID) string {
		return es.pendingTypes[id-1].Name
	})

	es.resolve(unsafe.Pointer(obj.UnsafeAddr()), es.infos.of(obj.Type()))
	es.fixups.length = 0 // nobody needs the reference to the root

	var o *encodedObject
	if err := safely(func() {
		for ; es.next < len(es.queue); es.next++ {
			if o = es.queue[es.next]; o.parent == nil {
				es.encodeObject(o)
			}
			if es.next%256 == 0 {
				patience.look()
			}
		}
	}); err != nil {
		if o != nil && !o.contents {
			Failf("encoding error: %w\nfor object %#v", err,
				reflect.NewAt(es.infos.reflected(o.info), o.p).Elem().Interface())
		}
		Failf("encoding error: %w", err)
	}
	es.write()
}

// write writes all types, and all objects in the order of their IDs.
func (es *encodeState) write() {
	var n uint64
	for _, o := range es.objects {
		if o != nil {
			n++
		}
	}
	if err := WriteHeader(&es.w, n, true); err != nil {
		Failf("error writing header: %w", err)
	}
	var o *encodedObject
	if err := safely(func() {
		for _, wt := range es.pendingTypes {
			wire.Save(&es.w, &wt)
		}
		for _, o = range es.objects {
			if o == nil {
				continue
			}
			es.out = binary.AppendUvarint(append(es.out, headerUint), uint64(o.id))
			es.emit(o.encoding)
			if len(es.out) >= outSize {
				es.flush()
			}
		}
		es.flush()
	}); err != nil {
		if o != nil {
			Failf("error serializing object %d of type %v: %w", o.id, o.info, err)
		}
		Failf("error serializing type: %w", err)
	}
}

// outSize is how much is written at once, in bytes, or more.
const outSize = 256 << 10

// flush writes what is on its way. It panics on error.
func (es *encodeState) flush() {
	if _, err := es.w.Write(es.out); err != nil {
		panic(err)
	}
	es.out = es.out[:0]
}

// emit puts out a region with its gaps filled.
func (es *encodeState) emit(r region) {
	at := r.start
	for i := r.fixups; i < r.fixupsEnd; i++ {
		f := es.fixups.at(i)
		es.out = append(es.out, es.buf[at:f.offset]...)
		at = f.offset
		if f.object != nil {
			es.emitReference(f)
			continue
		}
		if s := es.spliced[f.index]; s.fixups == i+1 && s.start == f.offset {
			at, i = s.end, s.fixupsEnd-1 // it comes later
		} else {
			es.emit(s)
		}
	}
	es.out = append(es.out, es.buf[at:r.end]...)
}

// emitReference puts out a reference.
func (es *encodeState) emitReference(f *fixup) {
	root, n := f.object, len(es.paths[f.index])
	for root.parent != nil {
		n += len(root.dots)
		root = root.parent
	}
	es.out = binary.AppendUvarint(binary.AppendUvarint(es.out, uint64(root.id)), uint64(n))
	if n == 0 {
		return
	}
	es.emitDots(es.paths[f.index])
	for o := f.object; o != root; o = o.parent {
		es.emitDots(o.dots)
	}
	es.out = es.appendSpec(es.out, root.info)
}

// emitDots puts out steps. An index is not negative; the length of a name is.
func (es *encodeState) emitDots(dots []wire.Dot) {
	for _, d := range dots {
		switch d := d.(type) {
		case wire.Index:
			es.out = binary.AppendVarint(es.out, int64(d))
		case *wire.FieldName:
			es.out = append(binary.AppendVarint(es.out, int64(-len(*d))), *d...)
		}
	}
}

// objectFlag indicates that the length is a # of objects, rather than a raw
// byte length. When this is set on a length header in the stream, it may be
// decoded appropriately.
const objectFlag uint64 = 1 << 63

// WriteHeader writes a header.
//
// Each object written to the statefile should be prefixed with a header. In
// order to generate statefiles that play nicely with debugging tools, raw
// writes should be prefixed with a header with object set to false and the
// appropriate length. This will allow tools to skip these regions.
func WriteHeader(w *wire.Writer, length uint64, object bool) error {
	// Sanity check the length.
	if length&objectFlag != 0 {
		Failf("impossibly huge length: %d", length)
	}
	if object {
		length |= objectFlag
	}

	// Write a header.
	return safely(func() {
		wire.SaveUint(w, length)
	})
}

package state

import (
	"fmt"
	"reflect"
	"unsafe"
)

// typeInfo is what the encoder and the decoder need to know about a type. There is one for each type in a typeCache,
// so that types are equal if and only if their pointers are.
type typeInfo struct {
	kind reflect.Kind
	zero zeroTest
	size uintptr

	// length is that of an array type.
	length int

	// typ is the type itself. It is nil for the array behind a slice until somebody asks; see typeCache.reflected.
	typ reflect.Type

	// elem is the type of the elements of an array or a slice, and of what a pointer points to. It is nil until
	// somebody asks; see typeCache.elem.
	elem *typeInfo

	// arrays are the unnamed types of arrays with elements of this type, by their length.
	arrays map[int]*typeInfo

	// slice and pointer are the types of slices of this type, and of pointers to it. They are nil until somebody asks.
	slice   reflect.Type
	pointer *typeInfo

	// fields are those of a struct. They are nil until somebody asks; see typeCache.fields.
	fields []fieldInfo

	// saverLoader is a nil pointer to a value of this type, if the pointer type implements SaverLoader.
	saverLoader SaverLoader

	// entry is the encoder's entry for this type, if known.
	entry *typeEntry

	// unknown is set if the encoder's database has no entry for this type, and cannot have any.
	unknown bool

	// slots are the types that were last saved to, or loaded from, each field of a struct.
	slots []slotInfo

	// dynamic is the type that was last seen in an interface of this type.
	dynamic slotInfo
}

// slotInfo is a type and its typeInfo.
type slotInfo struct {
	typ  reflect.Type
	info *typeInfo
}

// fieldInfo is a field of a struct.
type fieldInfo struct {
	name   string
	offset uintptr
	info   *typeInfo
}

// zeroTest says how to find out whether a value may be encoded as wire.Nil.
type zeroTest uint8

const (
	// zeroNever is for values that have to be encoded whatever they are: structs, and arrays of structs.
	zeroNever zeroTest = iota
	// zeroBytes is for values that are zero if all their bytes are.
	zeroBytes
	// zeroWord is for values that are zero if their first word is.
	zeroWord
	// zeroString is for strings: their length counts, not where they are.
	zeroString
	// zeroElements is for arrays that are zero if all their elements are.
	zeroElements
	// zeroReflect is for arrays of floating point numbers: whether a negative zero in them is zero depends on how
	// many there are.
	zeroReflect
	// zeroFails is for values that cannot be encoded.
	zeroFails
)

// zeroTestOf returns how to test values of a kind other than arrays.
func zeroTestOf(kind reflect.Kind) zeroTest {
	switch kind {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Ptr, reflect.Map:
		return zeroBytes
	case reflect.Slice, reflect.Interface:
		return zeroWord
	case reflect.String:
		return zeroString
	case reflect.Struct:
		return zeroNever
	default:
		return zeroFails
	}
}

// zeroTestOfArray returns how to test arrays of such elements.
func zeroTestOfArray(elem *typeInfo) zeroTest {
	switch {
	case elem.zero == zeroNever || elem.zero == zeroFails || elem.zero == zeroReflect:
		return elem.zero
	case isFloating(elem.kind):
		return zeroReflect
	case elem.zero == zeroBytes:
		return zeroBytes
	default:
		return zeroElements
	}
}

func isFloating(k reflect.Kind) bool {
	return k == reflect.Float32 || k == reflect.Float64 || k == reflect.Complex64 || k == reflect.Complex128
}

// isZero reports whether the value at p is to be encoded as wire.Nil where that is allowed.
func (ti *typeInfo) isZero(p unsafe.Pointer) bool {
	switch ti.zero {
	case zeroBytes:
		switch ti.size {
		case 1:
			return *(*uint8)(p) == 0
		case 2:
			return *(*uint16)(p) == 0
		case 4:
			return *(*uint32)(p) == 0
		case 8:
			return *(*uint64)(p) == 0
		default:
			for _, b := range unsafe.Slice((*byte)(p), ti.size) {
				if b != 0 {
					return false
				}
			}
			return true
		}
	case zeroWord:
		return *(*uintptr)(p) == 0
	case zeroString:
		return len(*(*string)(p)) == 0
	case zeroElements:
		for i := range ti.length {
			if !ti.elem.isZero(unsafe.Add(p, uintptr(i)*ti.elem.size)) {
				return false
			}
		}
		return true
	case zeroReflect:
		return reflect.NewAt(ti.typ, p).Elem().IsZero()
	case zeroFails:
		Failf("unknown type %q", ti.typ.Name())
	}
	return false
}

// String returns the type's name for errors.
func (ti *typeInfo) String() string {
	if ti.typ == nil {
		return fmt.Sprintf("[%d]%s", ti.length, ti.elem)
	}
	return ti.typ.String()
}

// at returns the interface of the value at p, which is of this type.
//
// Precondition: ti.saverLoader is not nil.
func (ti *typeInfo) at(p unsafe.Pointer) SaverLoader {
	sl := ti.saverLoader
	// A pointer in an interface is the second of its two words.
	(*[2]unsafe.Pointer)(unsafe.Pointer(&sl))[1] = p
	return sl
}

// typeCache has the typeInfos of all types that one encoder, or one decoder, has met.
type typeCache map[reflect.Type]*typeInfo

// of returns the typeInfo of typ.
func (tc typeCache) of(typ reflect.Type) *typeInfo {
	if ti, ok := tc[typ]; ok {
		return ti
	}
	kind := typ.Kind()
	if kind == reflect.Array && typ.Name() == "" {
		ti := tc.array(tc.of(typ.Elem()), typ.Len())
		ti.typ, tc[typ] = typ, ti
		return ti
	}
	ti := &typeInfo{kind: kind, size: typ.Size(), typ: typ, zero: zeroTestOf(kind)}
	switch kind {
	case reflect.Array:
		ti.length, ti.elem = typ.Len(), tc.of(typ.Elem())
		ti.zero = zeroTestOfArray(ti.elem)
	case reflect.Struct:
		ti.saverLoader, _ = reflect.Zero(reflect.PointerTo(typ)).Interface().(SaverLoader)
	}
	tc[typ] = ti
	return ti
}

// array returns the typeInfo of the unnamed array type with n elements.
func (tc typeCache) array(elem *typeInfo, n int) *typeInfo {
	if ti, ok := elem.arrays[n]; ok {
		return ti
	}
	ti := &typeInfo{kind: reflect.Array, size: uintptr(n) * elem.size, length: n, elem: elem, zero: zeroTestOfArray(elem)}
	if elem.arrays == nil {
		elem.arrays = make(map[int]*typeInfo)
	}
	elem.arrays[n] = ti
	if ti.zero == zeroReflect {
		tc.reflected(ti)
	}
	return ti
}

// reflected returns the type itself.
func (tc typeCache) reflected(ti *typeInfo) reflect.Type {
	if ti.typ == nil {
		ti.typ = reflect.ArrayOf(ti.length, tc.reflected(ti.elem))
		tc[ti.typ] = ti
	}
	return ti.typ
}

// elemOf returns the typeInfo of the type's elements.
func (tc typeCache) elemOf(ti *typeInfo) *typeInfo {
	if ti.elem == nil {
		ti.elem = tc.of(ti.typ.Elem())
	}
	return ti.elem
}

// fieldsOf returns the fields of a struct.
func (tc typeCache) fieldsOf(ti *typeInfo) []fieldInfo {
	if ti.fields == nil {
		ti.fields = make([]fieldInfo, ti.typ.NumField())
		for i := range ti.fields {
			f := ti.typ.Field(i)
			ti.fields[i] = fieldInfo{name: f.Name, offset: f.Offset, info: tc.of(f.Type)}
		}
	}
	return ti.fields
}

// slot returns the typeInfo of typ, which is saved to, or loaded from, that slot of a struct of type ti.
func (tc typeCache) slot(ti *typeInfo, slot int, typ reflect.Type) *typeInfo {
	if slot < len(ti.slots) && ti.slots[slot].typ == typ {
		return ti.slots[slot].info
	}
	info := tc.of(typ)
	ti.setSlot(slot, slotInfo{typ: typ, info: info})
	return info
}

// slotElem returns the typeInfo of what pointers of type typ point to, see slot.
func (tc typeCache) slotElem(ti *typeInfo, slot int, typ reflect.Type) *typeInfo {
	if slot < len(ti.slots) && ti.slots[slot].typ == typ {
		return ti.slots[slot].info
	}
	info := tc.elemOf(tc.of(typ))
	ti.setSlot(slot, slotInfo{typ: typ, info: info})
	return info
}

func (ti *typeInfo) setSlot(slot int, info slotInfo) {
	if slot >= len(ti.slots) {
		ti.slots = append(ti.slots, make([]slotInfo, slot+1-len(ti.slots))...)
	}
	ti.slots[slot] = info
}

// inside returns the typeInfo of typ, the type of what is in an interface of type ti.
func (tc typeCache) inside(ti *typeInfo, typ reflect.Type) *typeInfo {
	if ti.dynamic.typ != typ {
		ti.dynamic = slotInfo{typ: typ, info: tc.of(typ)}
	}
	return ti.dynamic.info
}

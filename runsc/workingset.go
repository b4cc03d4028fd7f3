package runsc

import enc "encoding/binary"

// WorkingSetFile says which parts of PagesFile a sandbox is to load first. Only a sandbox of the repaired build asks
// for it (patch 0010 in runsc/fast/patches). No snapshot has it.
const WorkingSetFile = "working_set.img"

// Extent is a part of a file, in bytes.
type Extent struct{ Off, Size int64 }

// AppendWorkingSet appends a part to the content of a WorkingSetFile. Parts are loaded in their order.
func AppendWorkingSet(content []byte, e Extent) []byte {
	content = enc.LittleEndian.AppendUint64(content, uint64(e.Off))
	return enc.LittleEndian.AppendUint64(content, uint64(e.Size))
}

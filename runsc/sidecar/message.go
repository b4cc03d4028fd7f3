package sidecar

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Kind is the first byte of a packet.
type Kind uint8

// Kinds of messages. The sidecar sends Hello, Open, Register, Read, Write, Finish and Loaded; the agent answers with
// Welcome, Opened, Registered, Completed and Finished. Numbers of files are given by the sidecar: image files from 0
// on and, for a save, the memory files of each image file from 0 on.
const (
	KindHello      Kind = 1 + iota // Text: Options as JSON
	KindWelcome                    // Err: why the agent refuses; empty: it takes the request
	KindOpen                       // ID: the file's number; Text: its name
	KindOpened                     // ID; Err
	KindRegister                   // ID: the memory file's number; File (in a save); Size; the memory file comes with it
	KindRegistered                 // ID; Err
	KindRead                       // ID, File, Dest, Off, Ranges
	KindCompleted                  // ID; File (in a save); Size: bytes read or written; EOF; Err
	// The sentry has hung up. Size: reads that it did not wait for; Err: why it could not be restored.
	KindLoaded
	// ID; File; Dest: the memory file to copy from; Ranges. Completed answers it, but not for pages.img: Finished says
	// whether all its pages were taken.
	KindWrite
	KindFinish   // ID: the number of an image file that is complete
	KindFinished // ID; Err
	kindEnd
)

// Limits for what one sandbox may ask for at once.
const (
	MaxFiles    = 8       // image files opened
	MaxDests    = 1 << 10 // registered memory files; in a save, of one image file
	MaxParallel = 32      // outstanding reads of one file
	MaxRanges   = 256     // ranges of one read or write
	MaxRead     = 1 << 20 // bytes of one read
	MaxWrite    = 4 << 20 // bytes of one write
	MaxWrites   = 64      // outstanding writes of one file
	maxText     = 8 << 10
	maxPacket   = 1 + 8 + 4 + 4 + 8 + 8 + 1 + 2 + maxText + 2 + MaxRanges*16
)

// Message is one packet. Its kind decides which fields count.
type Message struct {
	Kind   Kind
	ID     uint64
	File   uint32
	Dest   uint32 // number of a memory file
	Off    int64  // offset in the image file
	Size   uint64 // bytes
	EOF    bool   // the read ended at the end of the file
	Text   string // Err for answers
	Ranges []memmap.FileRange
}

// Err returns the error that an answer carries, or nil.
func (m *Message) Err() error {
	if m.Text == "" {
		return nil
	}
	return errors.New(m.Text)
}

// Total returns the sum of the ranges' lengths.
func (m *Message) Total() uint64 {
	var n uint64
	for _, r := range m.Ranges {
		n += r.Length()
	}
	return n
}

// Append encodes m at the end of b.
func (m *Message) Append(b []byte) []byte {
	text := m.Text[:min(len(m.Text), maxText)]
	b = append(b, byte(m.Kind))
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint32(b, m.File)
	b = binary.LittleEndian.AppendUint32(b, m.Dest)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Off))
	b = binary.LittleEndian.AppendUint64(b, m.Size)
	if m.EOF {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Ranges)))
	for _, r := range m.Ranges {
		b = binary.LittleEndian.AppendUint64(b, r.Start)
		b = binary.LittleEndian.AppendUint64(b, r.End)
	}
	return b
}

// errPacket means that a packet is not a message.
var errPacket = errors.New("malformed packet")

// Parse decodes one packet into m and checks every bound. It keeps no reference to b.
func (m *Message) Parse(b []byte) error {
	const fixed = 1 + 8 + 4 + 4 + 8 + 8 + 1 + 2
	if len(b) < fixed+2 || len(b) > maxPacket {
		return fmt.Errorf("%w: %d bytes", errPacket, len(b))
	}
	*m = Message{
		Kind: Kind(b[0]),
		ID:   binary.LittleEndian.Uint64(b[1:]),
		File: binary.LittleEndian.Uint32(b[9:]),
		Dest: binary.LittleEndian.Uint32(b[13:]),
		Off:  int64(binary.LittleEndian.Uint64(b[17:])),
		Size: binary.LittleEndian.Uint64(b[25:]),
		EOF:  b[33] == 1,
	}
	if m.Kind == 0 || m.Kind >= kindEnd || b[33] > 1 || m.Off < 0 {
		return fmt.Errorf("%w: kind %d, offset %d", errPacket, m.Kind, m.Off)
	}
	text := int(binary.LittleEndian.Uint16(b[34:]))
	b = b[fixed:]
	if text > maxText || text+2 > len(b) {
		return fmt.Errorf("%w: text of %d bytes", errPacket, text)
	}
	m.Text = string(b[:text])
	return m.parseRanges(b[text:])
}

func (m *Message) parseRanges(b []byte) error {
	n := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if n > MaxRanges || len(b) != n*16 {
		return fmt.Errorf("%w: %d ranges in %d bytes", errPacket, n, len(b))
	}
	most := uint64(MaxRead)
	if m.Kind == KindWrite {
		most = MaxWrite
	}
	var total uint64
	for i := range n {
		r := memmap.FileRange{
			Start: binary.LittleEndian.Uint64(b[i*16:]),
			End:   binary.LittleEndian.Uint64(b[i*16+8:]),
		}
		if r.Start >= r.End || r.Length() > most {
			return fmt.Errorf("%w: range %v", errPacket, r)
		}
		if total += r.Length(); total > most {
			return fmt.Errorf("%w: more than %d bytes at once", errPacket, most)
		}
		m.Ranges = append(m.Ranges, r)
	}
	return nil
}

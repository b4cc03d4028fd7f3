package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Ignored is traffic that does not count: IP packets from some addresses, for a port of the pod, or both.
type Ignored struct {
	From netip.Prefix `json:"from,omitzero"`  // not valid: from anywhere
	Port uint16       `json:"port,omitempty"` // of TCP, UDP or SCTP; 0: any, and all other protocols
}

// Covers reports whether packets of a kind are such traffic.
func (x Ignored) Covers(f Flow) bool {
	return !f.Broadcast && f.Protocol != "ARP" && f.From.IsValid() &&
		(!x.From.IsValid() || x.From.Contains(f.From)) && (x.Port == 0 || x.Port == f.Port)
}

// MaxIgnored bounds the length of a list of ignored traffic.
const MaxIgnored = 16

// ErrIgnored is the kind of error for a list of ignored traffic that cannot be used.
var ErrIgnored = errors.New("ignored traffic")

// Filter tells the packets of ignored traffic from all others. Nil ignores none. Its methods may be called
// concurrently.
type Filter struct {
	program []bpf.Instruction
	vm      *bpf.VM
}

// NewFilter returns the filter of a list, which is nil if the list is empty. Later fragments of a packet, and packets
// of IPv6 with extension headers, have no port that it knows.
func NewFilter(all []Ignored) (*Filter, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if len(all) > MaxIgnored {
		return nil, fmt.Errorf("%w: %d kinds, want at most %d", ErrIgnored, len(all), MaxIgnored)
	}
	f := new(Filter)
	for i, x := range all {
		if x.From.Addr().Is4In6() || !x.From.IsValid() && x.Port == 0 {
			return nil, fmt.Errorf("%w: the kind with index %d names no source of IPv4 or IPv6, and no port", ErrIgnored, i)
		}
		if !x.From.Addr().Is6() {
			f.program = append(f.program, x.ipv4()...)
		}
		if !x.From.Addr().Is4() {
			f.program = append(f.program, x.ipv6()...)
		}
	}
	f.program = append(f.program, bpf.RetConstant{Val: 0})
	var err error
	f.vm, err = bpf.NewVM(f.program)
	return f, err
}

// Match reports whether an Ethernet frame is ignored traffic.
func (f *Filter) Match(frame []byte) bool {
	if f == nil {
		return false
	}
	n, err := f.vm.Run(frame)
	return err == nil && n > 0
}

// kernel returns the filter for a packet socket: it accepts what Match reports, if that comes for this host alone.
func (f *Filter) kernel() []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_HOST, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}, f.program...)
}

// block is a part of a program that accepts a packet if all its conditions are met. Otherwise the program goes on
// behind it.
type block []bpf.Instruction

// leave stands for how much is skipped by a condition that is not met.
const leave = math.MaxUint8

// when is the condition that the value that was loaded last is so.
func when(cond bpf.JumpTest, value uint32) bpf.Instruction {
	return bpf.JumpIf{Cond: cond, Val: value, SkipFalse: leave}
}

// end returns the whole block.
func (b block) end() []bpf.Instruction {
	b = append(b, bpf.RetConstant{Val: 1})
	for i, x := range b {
		if j, ok := x.(bpf.JumpIf); ok && j.SkipFalse == leave {
			j.SkipFalse = uint8(len(b) - i - 1)
			b[i] = j
		}
	}
	return b
}

// from is the condition that the address at an offset is of a block of addresses. One that is not valid is any.
func (b block) from(p netip.Prefix, offset uint32) block {
	words := p.Masked().Addr().AsSlice()
	for bits := p.Bits(); bits > 0; bits -= 32 {
		mask := uint32(math.MaxUint32) << max(0, 32-bits)
		b = append(b, bpf.LoadAbsolute{Off: offset, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
			when(bpf.JumpEqual, binary.BigEndian.Uint32(words)))
		offset, words = offset+4, words[4:]
	}
	return b
}

// ported is the condition that the protocol whose number is at an offset has ports.
func (b block) ported(offset uint32) block {
	return append(b, bpf.LoadAbsolute{Off: offset, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
		when(bpf.JumpEqual, unix.IPPROTO_SCTP))
}

func (x Ignored) ipv4() []bpf.Instruction {
	b := block{bpf.LoadAbsolute{Off: 12, Size: 2}, when(bpf.JumpEqual, typeIPv4)}.from(x.From, etherHeader+12)
	if x.Port != 0 {
		b = append(b.ported(etherHeader+9),
			bpf.LoadAbsolute{Off: etherHeader + 6, Size: 2}, when(bpf.JumpBitsNotSet, 0x1fff), // no later fragment
			bpf.LoadMemShift{Off: etherHeader}, bpf.TXA{}, when(bpf.JumpGreaterOrEqual, ipv4Header), // the length of the header
			bpf.LoadIndirect{Off: etherHeader + 2, Size: 2}, when(bpf.JumpEqual, uint32(x.Port)))
	}
	return b.end()
}

func (x Ignored) ipv6() []bpf.Instruction {
	b := block{bpf.LoadAbsolute{Off: 12, Size: 2}, when(bpf.JumpEqual, typeIPv6)}.from(x.From, etherHeader+8)
	if x.Port != 0 {
		b = append(b.ported(etherHeader+6),
			bpf.LoadAbsolute{Off: etherHeader + ipv6Header + 2, Size: 2}, when(bpf.JumpEqual, uint32(x.Port)))
	}
	return b.end()
}

package sleep

import "slices"

// Bounds of what a waker holds for one interface. A TCP client sends one packet and waits; these are for many clients.
const (
	maxFrames = 1024
	maxBytes  = 1 << 20
)

// held are frames that wait for the pod, in the order in which they came. Beyond the bounds the oldest are dropped.
type held struct {
	frames  [][]byte
	bytes   int
	dropped int
}

// add holds a copy of a frame.
func (h *held) add(frame []byte) {
	h.frames = append(h.frames, append([]byte(nil), frame...))
	h.bytes += len(frame)
	for len(h.frames) > maxFrames || h.bytes > maxBytes {
		h.bytes -= len(h.frames[0])
		h.frames[0] = nil
		h.frames = h.frames[1:]
		h.dropped++
	}
}

// acknowledge no longer holds what the pod, by a segment that it has sent, says it has. Delivered once more, the first
// segment of a connection that is over by then would begin another one, which neither end knows.
func (h *held) acknowledge(from *segment) {
	if from.flags&tcpAck == 0 {
		return
	}
	h.frames = slices.DeleteFunc(h.frames, func(data []byte) bool {
		s, ok := parseSegment(data[virtioHeader:])
		known := ok && s.from == from.to && s.to == from.from && int32(from.ack-s.seq-s.length()) >= 0
		if known {
			h.bytes -= len(data)
		}
		return known
	})
}

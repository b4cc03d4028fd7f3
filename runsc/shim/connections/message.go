package connections

import (
	"bytes"
	"encoding/binary"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A message of ttrpc has a header: the length of what follows it, the id of its stream, its type and its flags. All
// numbers are big-endian. What follows is a Request or a Response in protobuf (ttrpc, PROTOCOL.md and request.proto).
const (
	streamAt = 4
	typeAt   = 8
	flagsAt  = 9
	headSize = 10
)

const (
	typeRequest  = 1
	typeResponse = 2
)

// Fields of a Request.
const (
	fieldService = 1
	fieldMethod  = 2
	fieldPayload = 3
	fieldTimeout = 4
)

// askStats is what each request for statistics begins with.
var askStats = protowire.AppendString(protowire.AppendTag(protowire.AppendString(
	protowire.AppendTag(nil, fieldService, protowire.BytesType), "containerd.task.v2.Task"),
	fieldMethod, protowire.BytesType), "Stats")

// isMessage reports whether p is one whole message.
func isMessage(p []byte) bool {
	return len(p) >= headSize && uint64(len(p)) == headSize+uint64(binary.BigEndian.Uint32(p))
}

// streamOf returns the stream of a message.
func streamOf(message []byte) uint32 { return binary.BigEndian.Uint32(message[streamAt:]) }

// setStream sets the stream of a message.
func setStream(message []byte, stream uint32) { binary.BigEndian.PutUint32(message[streamAt:], stream) }

// appendQuestion appends what a message asks for, if that is statistics: all of the request except for how long the
// asker waits.
func appendQuestion(key, message []byte) ([]byte, bool) {
	rest := message[headSize:]
	if message[typeAt] != typeRequest || message[flagsAt] != 0 || !bytes.HasPrefix(rest, askStats) {
		return key, false
	}
	for len(rest) > 0 {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return key, false
		}
		if number != fieldTimeout {
			key = append(key, rest[:size]...)
		}
		rest = rest[size:]
	}
	return key, true
}

// fieldContainer is the field with the container's id in all requests of containerd's task service.
const fieldContainer = 1

// containerOf returns the id of the container that a request is for, given at least the beginning of the message. If
// it cannot tell, it returns "".
func containerOf(message []byte) string {
	if len(message) < headSize || message[typeAt] != typeRequest {
		return ""
	}
	for rest := message[headSize:]; len(rest) > 0; {
		number, kind, size := protowire.ConsumeTag(rest)
		if size < 0 || kind != protowire.BytesType {
			return ""
		}
		if number == fieldPayload {
			return firstText(rest[size:])
		}
		value := protowire.ConsumeFieldValue(number, kind, rest[size:])
		if value < 0 {
			return ""
		}
		rest = rest[size+value:]
	}
	return ""
}

// firstText returns the text in the first field of a payload, which follows its length.
func firstText(payload []byte) string {
	_, length := protowire.ConsumeVarint(payload)
	if length < 0 {
		return ""
	}
	number, kind, size := protowire.ConsumeTag(payload[length:])
	if size < 0 || number != fieldContainer || kind != protowire.BytesType {
		return ""
	}
	text, size := protowire.ConsumeBytes(payload[length+size:])
	if size < 0 {
		return ""
	}
	return string(text)
}

// isAnswer reports whether a message is a response without an error.
func isAnswer(message []byte) bool {
	if message[typeAt] != typeResponse || message[flagsAt] != 0 {
		return false
	}
	var r ttrpc.Response
	err := proto.Unmarshal(message[headSize:], &r)
	return err == nil && r.GetStatus().GetCode() == int32(codes.OK)
}

// framing follows a stream of messages.
type framing struct {
	head []byte // of a message, as far as it has come; empty once it is there
	left uint32 // of what follows it
}

// pass takes note of the next bytes of the stream.
func (f *framing) pass(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(uint64(f.left), uint64(len(p)))
			f.left -= uint32(n)
			p = p[n:]
			continue
		}
		n := min(headSize-len(f.head), len(p))
		f.head = append(f.head, p[:n]...)
		p = p[n:]
		if len(f.head) == headSize {
			f.left = binary.BigEndian.Uint32(f.head)
			f.head = f.head[:0]
		}
	}
}

// between reports whether the stream is between two messages.
func (f *framing) between() bool { return f.left == 0 && len(f.head) == 0 }

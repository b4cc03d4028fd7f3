package sleep

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// What a probe by gRPC asks, and the answers: messages of 2 bytes with the status SERVING or NOT_SERVING, as
// grpc.health.v1 has them.
const (
	healthPath = "/grpc.health.v1.Health/Check"
	serving    = "\x00\x00\x00\x00\x02\x08\x01"
	notServing = "\x00\x00\x00\x00\x02\x08\x02"
)

// maxHealth bounds what one probe by gRPC may send, in bytes.
const maxHealth = 16 << 10

// frameHeader is the length of the header of an HTTP/2 frame.
const frameHeader = 9

// errNoHealth is the error for a connection over HTTP/2 that is no probe by gRPC.
var errNoHealth = errors.New("not a check of health by gRPC")

// health is the server's side of a connection on which the health of a pod is checked by gRPC, over HTTP/2 (RFC 9113)
// without TLS.
type health struct {
	status   string // the answer
	received int    // bytes
	rest     []byte // what has come and is no whole frame yet
	greeted  bool   // the client's preface has come
	stream   uint32 // of the question; 0: none has come
	in, out  bytes.Buffer
	framer   *http2.Framer
}

func newHealth(failing failures) *health {
	h := &health{status: serving}
	if failing.of(ProbeGRPC) {
		h.status = notServing
	}
	h.framer = http2.NewFramer(&h.out, &h.in)
	h.framer.SetMaxReadFrameSize(maxHealth)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = maxHealth
	return h
}

// isHTTP2 reports whether data is what a client over HTTP/2 begins with.
func isHTTP2(data []byte) bool { return bytes.HasPrefix(data, []byte(http2.ClientPreface)) }

func (h *health) take(data []byte) (reply []byte, last bool, err error) {
	if h.received += len(data); h.received > maxHealth {
		return nil, false, fmt.Errorf("%w: more than %d bytes", errNoHealth, maxHealth)
	}
	h.rest = append(h.rest, data...)
	if !h.greeted {
		h.greeted = true
		h.rest = h.rest[len(http2.ClientPreface):]
		if err := h.framer.WriteSettings(); err != nil {
			return nil, false, err
		}
	}
	for err == nil && h.nextFrame() {
		err = h.takeFrame()
	}
	reply = bytes.Clone(h.out.Bytes())
	h.out.Reset()
	return reply, false, err // the kubelet closes the connection
}

func (h *health) end() {}

// nextFrame moves a whole frame to where the framer reads. It reports whether there is one.
func (h *health) nextFrame() bool {
	if len(h.rest) < frameHeader {
		return false
	}
	size := frameHeader + int(binary.BigEndian.Uint32(h.rest)>>8)
	if len(h.rest) < size {
		return false
	}
	h.in.Reset()
	h.in.Write(h.rest[:size])
	h.rest = h.rest[size:]
	return true
}

// takeFrame does what one frame asks for.
func (h *health) takeFrame() error {
	f, err := h.framer.ReadFrame()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoHealth, err)
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return h.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.framer.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		if f.PseudoValue("path") != healthPath || h.stream != 0 || f.Truncated {
			return fmt.Errorf("%w: a question about %.80q", errNoHealth, f.PseudoValue("path"))
		}
		h.stream = f.StreamID
	case *http2.DataFrame:
		if f.StreamID == h.stream && f.StreamEnded() {
			return h.answer()
		}
	}
	return nil
}

// answer says whether the pod is healthy.
func (h *health) answer() error {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	head := func(end bool, fields ...hpack.HeaderField) error {
		b.Reset()
		for _, f := range fields {
			if err := e.WriteField(f); err != nil {
				return err
			}
		}
		return h.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: h.stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end,
		})
	}
	return errors.Join(
		head(false, hpack.HeaderField{Name: ":status", Value: "200"},
			hpack.HeaderField{Name: "content-type", Value: "application/grpc"}),
		h.framer.WriteData(h.stream, false, []byte(h.status)),
		head(true, hpack.HeaderField{Name: "grpc-status", Value: "0"}))
}

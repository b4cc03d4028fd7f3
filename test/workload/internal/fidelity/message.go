package fidelity

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// messageSize is small against a pipe's buffer, so that many are under way at any time.
const messageSize = 64

// pace is the time between two messages.
const pace = time.Millisecond

// message is a number and bytes that follow from it.
func message(seq uint64) []byte {
	b := make([]byte, messageSize)
	for i := 0; i < messageSize; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], seq*uint64(i+1))
	}
	return b
}

// checkMessage wants the message after all those before it.
func checkMessage(b []byte, want uint64) error {
	if got := binary.LittleEndian.Uint64(b); got != want {
		return fmt.Errorf("message %d: got number %d", want, got)
	}
	if string(b) != string(message(want)) {
		return fmt.Errorf("message %d: its bytes are not those sent", want)
	}
	return nil
}

// send writes messages as fast as they are taken.
func send(w io.Writer) error {
	for seq := uint64(1); ; seq++ {
		if _, err := w.Write(message(seq)); err != nil {
			return fmt.Errorf("send message %d: %w", seq, err)
		}
	}
}

// receive reads messages and calls seen for each; it returns the first that is wrong.
func receive(r io.Reader, seen func(b []byte) error) error {
	b := make([]byte, messageSize)
	for want := uint64(1); ; want++ {
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("receive message %d: %w", want, err)
		}
		if err := checkMessage(b, want); err != nil {
			return err
		}
		if err := seen(b); err != nil {
			return err
		}
	}
}

// echo checks messages and sends them back, slowly, so that the way to it stays full.
func echo(r io.Reader, w io.Writer) error {
	return receive(r, func(b []byte) error {
		time.Sleep(pace)
		_, err := w.Write(b)
		return err
	})
}

package fidelity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// offset reads a file in small steps through one descriptor, whose place in the file must stay.
func (s *Suite) offset() error {
	path, want := s.path("offset"), contents(9, 0)
	if err := create(path, 9); err != nil {
		return fmt.Errorf("offset: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("offset: %w", err)
	}
	s.closes(f)
	at, b := 0, make([]byte, 512)
	s.every(s.record("offset"), fileBeat, func() error {
		if _, err := io.ReadFull(f, b); err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		if !bytes.Equal(b, want[at:at+len(b)]) {
			return fmt.Errorf("read at %d: bytes from elsewhere", at)
		}
		if at += len(b); at < len(want) {
			return nil
		}
		at = 0
		_, err := f.Seek(0, io.SeekStart)
		return err
	})
	return nil
}

// maxJournal is how many messages a journal holds before it begins anew.
const maxJournal = 2048

// journal appends messages to a file and reads all of it now and then.
func (s *Suite) journal() error {
	f, err := os.OpenFile(s.path("journal"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	s.closes(f)
	seq := uint64(0)
	s.every(s.record("append"), 2*time.Millisecond, func() error {
		seq++
		if _, err := f.Write(message(seq)); err != nil {
			return err
		}
		if seq%64 != 0 {
			return nil
		}
		if err := checkJournal(f, seq); err != nil || seq < maxJournal {
			return err
		}
		seq = 0
		return f.Truncate(0)
	})
	return nil
}

// checkJournal wants the messages from 1 to last in f and nothing behind them.
func checkJournal(f io.ReaderAt, last uint64) error {
	r := io.NewSectionReader(f, 0, 1<<40)
	b := make([]byte, messageSize)
	for want := uint64(1); want <= last; want++ {
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("journal message %d of %d: %w", want, last, err)
		}
		if err := checkMessage(b, want); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if n, err := r.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("journal: %d bytes behind message %d: %v", n, last, err)
	}
	return nil
}

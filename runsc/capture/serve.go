package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/runsc/sidecar"
)

// file is an image file that is being written. Other goroutines may call finish and finalized; one calls the rest.
type file interface {
	// register takes over a memory file of the sentry. Its number is that of the memory files before.
	register(f *sidecar.File, size uint64) error
	// write begins a write, of at least one range. An error ends the connection. No write comes after finish.
	write(m *sidecar.Message) error
	// finish waits until all that was written is taken, and returns why the file is not complete.
	finish() error
	finalized() bool
	// close waits until all writes have ended, and closes the memory files.
	close()
}

// Serve serves a sidecar, which passes on what its sentry saves, until the sidecar hangs up. It owns conn. Call it
// once. If something is refused, the image is incomplete, and Err says why.
func (c *Capture) Serve(conn *sidecar.Conn) {
	defer close(c.done)
	s := serving{c: c, conn: conn}
	defer s.end()
	c.mu.Lock()
	c.conn = conn
	if c.aborted {
		conn.Close()
	}
	c.mu.Unlock()
	c.refused(s.receive())
}

// refused notes the first reason why something of the save was refused.
func (c *Capture) refused(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// serving is a sidecar's connection.
type serving struct {
	c     *Capture
	conn  *sidecar.Conn
	files []file                 // by number
	wg    sync.WaitGroup         // answers to finishes
	ends  [sidecar.MaxFiles]bool // by number: the sidecar has said that the file is complete
}

// end ends what the connection has begun. When it returns, nothing is copied out of the sandbox any more.
func (s *serving) end() {
	s.conn.Close()
	s.c.meanwhile.stop() // which a finish may be waiting for
	s.wg.Wait()
	for _, f := range s.files {
		f.close()
	}
}

// receive handles messages until the sidecar hangs up.
func (s *serving) receive() error {
	var m sidecar.Message
	for {
		f, err := s.conn.Receive(&m)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive from the sidecar: %w", err)
		}
		if err := s.handle(&m, f); err != nil {
			return err
		}
	}
}

// handle handles one message, and takes over f. An error ends the connection.
func (s *serving) handle(m *sidecar.Message, f *sidecar.File) error {
	if m.Kind == sidecar.KindRegister && f != nil {
		return s.register(m, f)
	}
	if f != nil {
		f.Drop()
		return fmt.Errorf("a file came with a message of kind %d", m.Kind)
	}
	switch m.Kind {
	case sidecar.KindOpen:
		s.answer(&sidecar.Message{Kind: sidecar.KindOpened, ID: m.ID}, s.open(m))
		return nil
	case sidecar.KindWrite:
		return s.write(m)
	case sidecar.KindFinish:
		return s.finish(m)
	}
	return fmt.Errorf("unexpected message of kind %d", m.Kind)
}

// answer sends an answer, which is a refusal if err is set. If sending fails the sidecar is gone, and Receive says so.
func (s *serving) answer(m *sidecar.Message, err error) {
	if err != nil {
		m.Text = err.Error()
		s.c.refused(err)
	}
	_ = s.conn.Send(m, -1)
}

// open opens an image file. Files have numbers in the order in which they are opened, also those that are refused.
func (s *serving) open(m *sidecar.Message) error {
	if m.ID != uint64(len(s.files)) || m.ID >= sidecar.MaxFiles {
		return fmt.Errorf("image file %d cannot be opened after %d", m.ID, len(s.files))
	}
	number := uint32(m.ID)
	f, err := s.c.open(m.Text, func(id, n uint64) {
		s.answer(&sidecar.Message{Kind: sidecar.KindCompleted, ID: id, File: number, Size: n}, nil)
	})
	if err != nil {
		f = refused{err}
	}
	s.files = append(s.files, f)
	return err
}

// open returns an image file that is not opened yet. Its writes are answered by answer, if they are answered.
func (c *Capture) open(name string, answer func(id, n uint64)) (f file, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[name] != nil {
		return nil, fmt.Errorf("image file %q was opened before", name)
	}
	if c.opened.IsZero() {
		c.opened = time.Now()
	}
	switch {
	case name == checkpointfiles.PagesFileName:
		f = newPagesFile(c, c.pages)
	case slices.Contains(c.small, name):
		f = newSmallFile(c, answer)
	default:
		return nil, fmt.Errorf("unknown image file %q", name)
	}
	c.files[name] = f
	return f, nil
}

// register takes over a memory file.
func (s *serving) register(m *sidecar.Message, f *sidecar.File) error {
	to, err := s.file(uint64(m.File))
	if err != nil {
		f.Drop()
		return err
	}
	s.answer(&sidecar.Message{Kind: sidecar.KindRegistered, ID: m.ID, File: m.File}, to.register(f, m.Size))
	return nil
}

func (s *serving) write(m *sidecar.Message) error {
	f, err := s.file(uint64(m.File))
	if err != nil {
		return err
	}
	if s.ends[m.File] {
		return fmt.Errorf("image file %d is written to after its end", m.File)
	}
	return f.write(m)
}

// finish finishes an image file. It does not wait for that: if the sidecar hangs up meanwhile, it must be noticed.
func (s *serving) finish(m *sidecar.Message) error {
	f, err := s.file(m.ID)
	if err != nil {
		return err
	}
	if s.ends[m.ID] {
		return fmt.Errorf("image file %d is finished twice", m.ID)
	}
	s.ends[m.ID] = true
	id := m.ID
	s.wg.Go(func() { s.answer(&sidecar.Message{Kind: sidecar.KindFinished, ID: id}, f.finish()) })
	return nil
}

func (s *serving) file(number uint64) (file, error) {
	if number >= uint64(len(s.files)) {
		return nil, fmt.Errorf("image file %d is not open", number)
	}
	return s.files[number], nil
}

// refused is an image file that was not opened.
type refused struct{ err error }

func (r refused) register(f *sidecar.File, _ uint64) error {
	f.Drop()
	return r.err
}

func (r refused) write(*sidecar.Message) error { return r.err }
func (r refused) finish() error                { return r.err }
func (r refused) finalized() bool              { return false }
func (r refused) close()                       {}

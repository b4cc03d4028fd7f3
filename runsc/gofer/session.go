package gofer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"diapause.dev/runsc"
	"diapause.dev/runsc/sidecar"
)

// Source is where a restore reads its image files from. Its methods are called concurrently.
type Source interface {
	// Size returns the size of an image file in bytes, or why there is none.
	Size(file string) (int64, error)
	// ReadAt fills p from off on, with verified bytes only. It is not asked for bytes beyond the end. If the failure
	// may pass (the store is unreachable), it retries until ctx is done. An error is final.
	ReadAt(ctx context.Context, file string, off int64, p []byte) error
	// Failed reports why a read of a file has failed, before the sandbox is told. The sandbox does not survive that if it
	// cannot do without the file.
	Failed(file string, err error)
	// Asked reports a read before it is carried out, in the order in which the sandbox asks, and why. A read that was
	// Ahead is reported once more if somebody comes to wait for it. Asked must not wait for anything.
	Asked(file string, off, n int64, why Need)
	// Pace says how the sandbox loads ahead of need, at this time, if the next such read is this one. Prompt means that
	// the sandbox asks for what somebody waits for at once, and otherwise only once some other read has ended. It must not
	// wait for anything.
	Pace(file string, off, n int64, prompt bool) Pace
	// Rest is called after a read ahead of need that gives way, and has taken so long. It returns how long it takes until
	// the next one may begin.
	Rest(took time.Duration) time.Duration
	// Ended reports that the sidecar's connection has ended. If the sandbox is Gone, reason is what the sidecar said
	// about it, if anything.
	Ended(end End, reason error)
	// Account returns the account of what the restore writes into memory files. All sessions of a restore share one.
	Account() *Account
	// Breach reports that the sidecar has done what no honest one does, with an error of kind ErrBreach. The session
	// ends, and another one is refused. The sandbox must not survive it.
	Breach(err error)
}

// Need says who needs a read.
type Need int

// The needs for a read.
const (
	Ahead   Need = iota // nobody yet: memory is loaded ahead of need
	Awaited             // somebody in the sandbox waits for it
	Late                // somebody waits for what was asked for ahead of need
)

// End says how a session ended.
type End int

// The ways in which a session ends.
const (
	Lost   End = iota // the connection broke: the sidecar has come back, or may come back, to this agent or the next
	Loaded            // the sandbox has everything
	Gone              // the sandbox hung up before it had everything, or its sidecar has exited
)

// maxMemoryFile bounds the size of a memory file, in bytes.
const maxMemoryFile = 1 << 44

// session answers one sidecar's connection.
type session struct {
	conn  *sidecar.Conn
	src   Source
	acc   *Account
	again bool // see Account
	log   *slog.Logger
	leave context.CancelFunc // makes run return
	ended chan struct{}      // closed when run has returned

	// Written by the receiver before a read that uses them is queued.
	files map[uint32]imageFile
	dests map[uint32]memoryFile

	reason error // why the sandbox could not be restored, according to its sidecar

	reads *queue
}

type imageFile struct {
	number uint32
	name   string
	size   int64
	order  *order // of a file with memory
}

type memoryFile struct {
	f      *sidecar.File
	size   uint64
	onDisk bool
}

type readRequest struct {
	id     uint64
	file   imageFile
	dest   memoryFile
	off    int64
	ranges []memmap.FileRange
	total  int64
	prompt bool // see Source.Pace

	reminds bool // it only says that somebody waits: see need
}

func newSession(c *sidecar.Conn, d sidecar.Direction, src Source, t turns, log *slog.Logger) *session {
	pace := func(r *readRequest) Pace { return src.Pace(r.file.name, r.off, r.total, r.prompt) }
	return &session{
		conn: c, src: src, acc: src.Account(), again: d == sidecar.RootfsRestore, log: log, ended: make(chan struct{}),
		files: make(map[uint32]imageFile),
		dests: make(map[uint32]memoryFile),
		reads: newQueue(pace, src.Rest, t),
	}
}

// run serves the connection until it ends or ctx is done. If the connection is lost, run waits until the sidecar's
// process has exited, or until ctx is done, which it is when the sidecar has come back. When run returns, no write
// into the sandbox's memory is under way.
func (s *session) run(ctx context.Context) error {
	process, err := peer(s.conn.Unix())
	if err != nil {
		s.log.Warn("if this sidecar dies, its end is not noticed", "error", err)
	}
	defer process.close()
	end, err := s.serve(ctx)
	s.conn.Close()
	if breach := s.acc.breached(); breach != nil {
		s.src.Breach(breach)
		end, s.reason, err = Gone, breach, errors.Join(err, breach)
	}
	if end == Lost && process.exits(ctx) {
		end = Gone
	}
	s.src.Ended(end, s.reason)
	return err
}

// serve welcomes the sidecar and serves it as long as the connection lasts, or until it commits a breach.
func (s *session) serve(ctx context.Context) (End, error) {
	refusal := s.acc.begin(s.again)
	if err := s.conn.Welcome(refusal); err != nil || refusal != nil {
		return Lost, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 {
		wg.Go(func() { s.work(ctx) })
	}
	end, err := s.receive()
	cancel()
	stop()
	s.reads.close()
	wg.Wait()
	for _, d := range s.dests {
		d.f.Close()
	}
	return end, err
}

// receive handles requests until the connection ends.
func (s *session) receive() (End, error) {
	var m sidecar.Message
	for {
		f, err := s.conn.Receive(&m)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			return Lost, nil
		}
		if err != nil {
			return Lost, fmt.Errorf("receive from the sidecar: %w", err)
		}
		if m.Kind == sidecar.KindLoaded {
			return s.hungUp(&m), nil
		}
		if err := s.handle(&m, f); err != nil {
			return Lost, err
		}
	}
}

// hungUp returns how a session ended after the sentry has hung up.
func (s *session) hungUp(m *sidecar.Message) End {
	s.reason = m.Err()
	if m.Size == 0 && s.reason == nil {
		return Loaded
	}
	return Gone
}

// handle handles one request. An error ends the session.
func (s *session) handle(m *sidecar.Message, f *sidecar.File) error {
	if m.Kind == sidecar.KindRegister && f != nil {
		return s.answer(sidecar.KindRegistered, m.ID, s.register(m, f))
	}
	if f != nil {
		f.Drop()
		return fmt.Errorf("a file came with a message of kind %d", m.Kind)
	}
	switch m.Kind {
	case sidecar.KindOpen:
		return s.answer(sidecar.KindOpened, m.ID, s.open(m))
	case sidecar.KindRead:
		r, err := s.read(m)
		if err != nil {
			s.src.Failed(s.files[m.File].name, err)
			return s.answer(sidecar.KindCompleted, m.ID, err)
		}
		why := s.need(r)
		if why == Late {
			r.reminds = true
			s.hasten(r)
		}
		s.src.Asked(r.file.name, r.off, r.total, why)
		if !s.reads.put(r, why != Ahead) {
			return fmt.Errorf("more than %d reads outstanding", maxQueued)
		}
		return nil
	}
	return fmt.Errorf("unexpected message of kind %d", m.Kind)
}

// need returns who needs a read, and notes whether the sandbox is prompt. One of the repaired build of runsc is: it
// opens the file with its memory twice, first for what it loads ahead of need, then for what somebody waits for
// (OpenReadLanes in runsc/fast). With another one the read's place tells.
func (s *session) need(r *readRequest) Need {
	if r.file.order == nil {
		return Awaited
	}
	lanes, first := 0, r.file.number
	for number, f := range s.files {
		if f.name == r.file.name {
			lanes, first = lanes+1, min(first, number)
		}
	}
	r.prompt = lanes > 1
	switch {
	case r.prompt && r.file.number == first:
		return Ahead
	case r.prompt && r.dest.size == hostarch.PageSize: // a reminder, see AddReminder in runsc/fast
		return Late
	case r.prompt || r.file.order.awaited(r.off, r.total):
		return Awaited
	}
	return Ahead
}

// hasten has reads ahead of need that a reminder is of carried out at once.
func (s *session) hasten(reminder *readRequest) {
	for _, r := range s.reads.hasten(reminder.file.name, reminder.off, reminder.total) {
		s.src.Asked(r.file.name, r.off, r.total, Late)
	}
}

func (s *session) answer(k sidecar.Kind, id uint64, err error) error {
	m := sidecar.Message{Kind: k, ID: id}
	if err != nil {
		m.Text = err.Error()
		s.log.Warn("request of the sandbox failed", "error", err)
	}
	return s.conn.Send(&m, -1)
}

func (s *session) open(m *sidecar.Message) error {
	if m.ID >= sidecar.MaxFiles {
		return fmt.Errorf("file number %d is out of range", m.ID)
	}
	size, err := s.src.Size(m.Text)
	if err != nil {
		size = unknownSize // the sidecar may have come back: then it reads all the same
	} else {
		s.acc.opened(m.Text, size)
	}
	f := imageFile{number: uint32(m.ID), name: m.Text, size: size}
	if f.name == runsc.PagesFile {
		f.order = &order{}
	}
	s.files[uint32(m.ID)] = f
	return err
}

// unknownSize is the size of a file that could not be opened. Reads of it are tried all the same. The source must
// learn that they fail, and the sandbox may never ask it for the size.
const unknownSize = -1

// length returns how many bytes of a read are in the file.
func (s *session) length(r *readRequest) int64 {
	size := r.file.size
	if size == unknownSize {
		var err error
		if size, err = s.src.Size(r.file.name); err != nil {
			return r.total
		}
		s.acc.opened(r.file.name, size)
	}
	return max(0, min(r.total, size-r.off))
}

// register takes over f.
func (s *session) register(m *sidecar.Message, f *sidecar.File) error {
	_, known := s.dests[uint32(m.ID)]
	if m.ID >= sidecar.MaxDests || m.Size > maxMemoryFile || known {
		f.Drop()
		return fmt.Errorf("memory file %d of %d bytes cannot be registered", m.ID, m.Size)
	}
	onDisk, err := runsc.CheckMemoryFile(f.Fd())
	if err != nil {
		f.Drop()
		return err
	}
	s.dests[uint32(m.ID)] = memoryFile{f: f, size: m.Size, onDisk: onDisk}
	return nil
}

// read checks a read request against the files that are open and registered.
func (s *session) read(m *sidecar.Message) (*readRequest, error) {
	file, ok := s.files[m.File]
	if !ok {
		return nil, fmt.Errorf("read of file %d, which is not open", m.File)
	}
	dest, ok := s.dests[m.Dest]
	if !ok {
		return nil, fmt.Errorf("read into memory file %d, which is not registered", m.Dest)
	}
	if len(m.Ranges) == 0 {
		return nil, errors.New("read of nothing")
	}
	for _, r := range m.Ranges {
		if r.End > dest.size {
			return nil, fmt.Errorf("read into %v of a memory file of %d bytes", r, dest.size)
		}
	}
	return &readRequest{id: m.ID, file: file, dest: dest, off: m.Off, ranges: m.Ranges, total: int64(m.Total())}, nil
}

// readBuffers are shared by all sessions. Some sessions last as long as their sandboxes, and hardly ever read.
var readBuffers = sync.Pool{New: func() any { b := make([]byte, sidecar.MaxRead); return &b }}

// work carries out reads.
func (s *session) work(ctx context.Context) {
	for r, done := s.reads.next(); r != nil; r, done = s.reads.next() {
		m := sidecar.Message{Kind: sidecar.KindCompleted, ID: r.id}
		n, err := s.carryOut(ctx, r)
		done()
		if errors.Is(err, ErrBreach) {
			s.acc.broken(err)
			s.conn.Close()
			continue
		}
		if ctx.Err() != nil {
			continue // nobody waits: the sidecar repeats it in the next session
		}
		m.Size, m.EOF = uint64(n), n < r.total && err == nil
		if err != nil {
			m.Text = err.Error()
			s.log.Error("read for the sandbox failed", "file", r.file.name, "offset", r.off, "error", err)
			s.src.Failed(r.file.name, err)
		}
		if err := s.conn.Send(&m, -1); err != nil {
			// The sidecar notices. What it sent before it went must still be received.
			s.conn.Unix().CloseWrite()
		}
	}
}

// carryOut fills the ranges of r and returns the number of bytes. At the end of the file that is less than was
// asked for. No sandbox asks for memory beyond the end.
func (s *session) carryOut(ctx context.Context, r *readRequest) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n := s.length(r)
	if n < r.total && r.file.order != nil {
		s.src.Failed(r.file.name, fmt.Errorf("%s: read of %d bytes at %d, where the file has %d", r.file.name, r.total,
			r.off, n))
	}
	if n == 0 {
		return 0, nil
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	p := (*buf)[:n]
	if err := s.src.ReadAt(ctx, r.file.name, r.off, p); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return n, s.write(r, p)
}

// write writes p into the ranges of r. If the sidecar is caught at a breach, the error is of kind ErrBreach.
func (s *session) write(r *readRequest, p []byte) error {
	if r.reminds {
		return nil // nobody looks at it
	}
	if err := s.acc.spend(int64(len(p)), time.Now()); err != nil {
		return err
	}
	if !r.dest.onDisk {
		if err := allocated(r.dest.f.Fd(), r.ranges, int64(len(p))); err != nil {
			return err
		}
	}
	return writeRanges(r.dest.f.Fd(), r.ranges, p)
}

// writeRanges writes p into the ranges, in order. It uses the descriptor and not a mapping: if a sandbox
// truncates its own memory file, it gets what it asked for, and the agent gets no SIGBUS.
func writeRanges(fd int, ranges []memmap.FileRange, p []byte) error {
	for _, r := range ranges {
		part := p[:min(int(r.Length()), len(p))]
		p = p[len(part):]
		for off := int64(r.Start); len(part) > 0; {
			n, err := unix.Pwrite(fd, part, off)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return fmt.Errorf("write memory file at %#x: %w", off, err)
			}
			part, off = part[n:], off+int64(n)
		}
	}
	return nil
}

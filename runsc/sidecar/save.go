package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// errAgentGone means that the agent has hung up: it has given up the save, or has ended.
var errAgentGone = errors.New("the agent has hung up")

// save connects to the agent and serves a sentry that saves its sandbox.
func save(opts Options, a Args, log *slog.Logger) error {
	c, err := greet(opts)
	if err != nil {
		return err
	}
	return serveSave(c, a, log)
}

// saveLater waits until the sentry sends something, possibly for the sandbox's whole life, and then is like save. While
// no agent is reachable it tries again: the sandbox is not paused yet.
func saveLater(opts Options, a Args, log *slog.Logger) error {
	forever := time.Duration(-1)
	for pause := forever; ; pause = savePause {
		events, err := poll(a.SockFD, pause)
		if err != nil || events&(unix.POLLHUP|unix.POLLERR) != 0 {
			return err // the sandbox has ended
		}
		c, err := greet(opts)
		if err == nil {
			return serveSave(c, a, log)
		}
		if refused := new(RefusedError); errors.As(err, &refused) {
			return err
		}
		time.Sleep(savePause)
	}
}

// poll waits until a socket has something to read, or its other end is gone. A negative limit means no limit.
func poll(sock int, limit time.Duration) (events int16, err error) {
	fds := []unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int(limit.Milliseconds())
	}
	for {
		_, err := unix.Poll(fds, milliseconds)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the sentry: %w", err)
		}
		return fds[0].Revents, nil
	}
}

// savePause is the pause between two attempts to reach the agent.
const savePause = 50 * time.Millisecond

// serveSave serves the sentry until it hangs up. It passes on to the agent what the sentry saves; the agent copies the
// bytes itself. When the agent hangs up, all that the sentry writes fails, and serveSave hangs up on it, too. The
// sentry's save fails then, and the sandbox runs on. But while the sentry is opening its files, that would be the end
// of it (see [savedFile]): serveSave waits until it is done with that, for at most openTime.
//
// What gVisor's servers do with a hostile sentry's messages happens in this process, which has nothing to lose.
func serveSave(c *Conn, a Args, log *slog.Logger) error {
	defer c.Close()
	if a.Alone {
		if err := confine(); err != nil {
			return err
		}
	}
	hangup, err := unix.FcntlInt(uintptr(a.SockFD), unix.F_DUPFD_CLOEXEC, 0) // the server closes its own
	if err != nil {
		return fmt.Errorf("sentry's socket: %w", err)
	}
	defer unix.Close(hangup)
	us, err := unet.NewSocket(a.SockFD)
	if err != nil {
		return fmt.Errorf("sentry's socket: %w", err)
	}
	s := &saver{conn: c, log: log, gone: make(chan struct{}), opened: make(chan struct{})}
	fs, err := stateipc.NewAsyncFileServer(s)
	if err != nil {
		return fmt.Errorf("serve the sentry: %w", err)
	}
	server := urpc.NewServer()
	server.Register(fs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Handle(us) // until the sentry is done, or dead: either way it hangs up, which is the error
	}()
	go s.receive()
	select {
	case <-ended:
		return nil
	case <-s.gone:
	}
	select {
	case <-ended:
	case <-s.opened:
	case <-time.After(openTime):
	}
	if unix.Shutdown(hangup, unix.SHUT_RD) == nil { // the answer to its last question still leaves
		select {
		case <-ended:
		case <-time.After(answerTime):
		}
	}
	unix.Shutdown(hangup, unix.SHUT_RDWR)
	return errAgentGone
}

// answerTime bounds how long a sentry may take to receive an answer once the agent is gone.
const answerTime = time.Second

// openTime bounds how long a sentry may take to open its files once the agent is gone.
const openTime = 10 * time.Second

// saver passes a sentry's save on to the agent. It implements stateipc.AsyncFileServerImpl.
type saver struct {
	conn *Conn
	log  *slog.Logger
	gone chan struct{} // closed when the agent has hung up

	opening sync.Once     // closes opened
	opened  chan struct{} // closed when the sentry goes on, having opened its last file, pages.img

	mu    sync.Mutex
	files []*savedFile // by number
}

// receive receives the agent's answers until it hangs up.
func (s *saver) receive() {
	defer close(s.gone)
	var m Message
	for {
		f, err := s.conn.Receive(&m)
		if err != nil {
			return
		}
		f.Drop()
		s.answered(&m)
	}
}

// answered passes an answer on to the file that waits for it.
func (s *saver) answered(m *Message) {
	number := m.ID // of the file
	if m.Kind == KindCompleted || m.Kind == KindRegistered {
		number = uint64(m.File)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number >= uint64(len(s.files)) {
		return
	}
	f := s.files[number]
	if m.Kind != KindCompleted {
		answer(f.answers, m.Err())
		return
	}
	c := stateio.Completion{ID: int(m.ID), N: m.Size}
	if m.Text != "" {
		s.log.Error("write failed", "file", f.path, "error", m.Text)
		c.N, c.Err = 0, unix.EIO
	}
	f.complete(c)
}

// Destroy implements stateipc.AsyncFileServerImpl.
func (s *saver) Destroy() {}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s *saver) OpenRead(string) (stateio.AsyncReader, error) {
	return nil, errors.New("this is a checkpoint: nothing can be read")
}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s *saver) OpenWrite(path string) (stateio.AsyncWriter, error) {
	s.mu.Lock()
	if len(s.files) >= MaxFiles {
		s.mu.Unlock()
		return nil, fmt.Errorf("more than %d image files opened", MaxFiles)
	}
	f := &savedFile{
		saver: s, number: uint32(len(s.files)), path: path, pages: path == checkpointfiles.PagesFileName,
		answers: make(chan error, 1), done: make(chan stateio.Completion, MaxWrites),
	}
	s.files = append(s.files, f)
	s.mu.Unlock()
	if err := f.ask(&Message{Kind: KindOpen, ID: uint64(f.number), Text: path}, -1); err != nil {
		f.fail("image file not opened", err)
	}
	return f, nil
}

// savedFile is an image file that the sentry writes. It implements stateio.AsyncWriter.
//
// The agent may refuse to open a file or to take a memory file, or may have gone. The sentry is told that all is well,
// and everything that it then does with the file fails. If opening failed, the sentry would close a file that it does
// not have, and die of it (pkg/sentry/control/state.go, setSaveOptsForCheckpointGofer: its interfaces are not nil).
type savedFile struct {
	saver   *saver
	number  uint32
	path    string
	pages   bool       // it is pages.img
	asking  sync.Mutex // held from a question to its answer
	sources uint32     // registered memory files; guarded by asking
	answers chan error // capacity 1
	done    chan stateio.Completion
	failed  atomic.Bool // it was not opened, or a memory file was not taken
}

// errFailed is the error of everything that is done with a file that has failed.
var errFailed = errors.New("the agent did not take the image file, as the sidecar's log says")

// fail notes that the agent does not take the file.
func (f *savedFile) fail(what string, err error) {
	f.saver.log.Error(what, "file", f.path, "error", err)
	f.failed.Store(true)
}

// ask sends a question and waits for the agent's answer.
func (f *savedFile) ask(m *Message, fd int) error {
	f.asking.Lock()
	defer f.asking.Unlock()
	return f.askLocked(m, fd)
}

// askLocked is ask. The caller holds f.asking.
func (f *savedFile) askLocked(m *Message, fd int) error {
	if err := f.saver.conn.Send(m, fd); err != nil {
		return fmt.Errorf("%w: %w", errAgentGone, err)
	}
	select {
	case err := <-f.answers:
		return err
	case <-f.saver.gone:
		return errAgentGone
	}
}

// Close implements stateio.AsyncWriter.Close. The agent forgets the file with the connection.
func (f *savedFile) Close() error { return nil }

// MaxWriteBytes implements stateio.AsyncWriter.MaxWriteBytes. Pages come in few large writes: each costs two processes
// a wake-up. For other files the sentry has a buffer of that size, which counts as the pod's memory.
func (f *savedFile) MaxWriteBytes() uint64 {
	if f.pages {
		return MaxWrite
	}
	return smallWrite
}

// smallWrite bounds a write, in bytes, of every image file except pages.img.
const smallWrite = 1 << 20

// MaxRanges implements stateio.AsyncWriter.MaxRanges.
func (f *savedFile) MaxRanges() int { return MaxRanges }

// MaxParallel implements stateio.AsyncWriter.MaxParallel.
func (f *savedFile) MaxParallel() int { return MaxWrites }

// NeedRegisterSourceFD implements stateio.AsyncWriter.NeedRegisterSourceFD.
func (f *savedFile) NeedRegisterSourceFD() bool { return true }

// RegisterSourceFD implements stateio.AsyncWriter.RegisterSourceFD.
func (f *savedFile) RegisterSourceFD(fd int32, size uint64,
	_ []stateio.ClientFileRangeSetting,
) (stateio.SourceFile, error) {
	if _, err := checkMemoryFile(int(fd)); err != nil {
		return nil, err
	}
	if f.pages {
		f.saver.opening.Do(func() { close(f.saver.opened) })
	}
	f.asking.Lock()
	defer f.asking.Unlock()
	n := f.sources
	if f.failed.Load() {
		return n, nil
	}
	m := Message{Kind: KindRegister, ID: uint64(n), File: f.number, Size: size}
	if err := f.askLocked(&m, int(fd)); err != nil {
		f.fail("memory file not taken", err)
		return n, nil
	}
	f.sources++
	return n, nil
}

// AddWrite implements stateio.AsyncWriter.AddWrite.
func (f *savedFile) AddWrite(id int, sf stateio.SourceFile, fr memmap.FileRange, _ []byte) {
	f.add(id, sf, []memmap.FileRange{fr})
}

// AddWritev implements stateio.AsyncWriter.AddWritev.
func (f *savedFile) AddWritev(id int, _ uint64, sf stateio.SourceFile, frs []memmap.FileRange, _ []unix.Iovec) {
	f.add(id, sf, frs)
}

// add passes a write on. If that fails, the agent is gone, and Wait says so.
//
// A write of pages is done for the sentry as soon as it is passed on. The sentry changes no page before pages.img is
// finished (kernel.go, saveMemoryFiles), and that waits until the agent has them all. So nobody waits for an answer
// to a write. Other files are written from a buffer, which is filled anew once a write is done.
func (f *savedFile) add(id int, sf stateio.SourceFile, frs []memmap.FileRange) {
	if f.failed.Load() {
		return
	}
	m := Message{Kind: KindWrite, ID: uint64(id), File: f.number, Dest: sf.(uint32), Ranges: frs}
	if err := f.saver.conn.Send(&m, -1); err != nil {
		f.saver.log.Warn("write not passed on", "error", err)
		return
	}
	if f.pages {
		f.complete(stateio.Completion{ID: id, N: m.Total()})
	}
}

// complete hands a completion to Wait.
func (f *savedFile) complete(c stateio.Completion) {
	select {
	case f.done <- c:
	default: // more than the sentry can have asked for
	}
}

// Wait implements stateio.AsyncWriter.Wait.
func (f *savedFile) Wait(cs []stateio.Completion, least int) ([]stateio.Completion, error) {
	if f.failed.Load() {
		return cs, errFailed
	}
	for n := 0; n < least; n++ {
		select {
		case c := <-f.done:
			cs = append(cs, c)
		case <-f.saver.gone:
			return cs, errAgentGone
		}
	}
	for {
		select {
		case c := <-f.done:
			cs = append(cs, c)
		default:
			return cs, nil
		}
	}
}

// Reserve implements stateio.AsyncWriter.Reserve.
func (f *savedFile) Reserve(uint64) {}

// Finalize implements stateio.AsyncWriter.Finalize.
func (f *savedFile) Finalize() error {
	if f.failed.Load() {
		return errFailed
	}
	return f.ask(&Message{Kind: KindFinish, ID: uint64(f.number)}, -1)
}

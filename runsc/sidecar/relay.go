package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

const (
	// retryFirst and retryMost are the first and the longest pause between two attempts to reach the agent,
	// give or take a quarter.
	retryFirst = 5 * time.Millisecond
	retryMost  = time.Second
	// stateTime bounds how long the sentry waits without an agent for anything except its pages. The sandbox does
	// not run yet, and whatever started it wants an answer.
	stateTime = 30 * time.Second
)

// relay serves the sentry on sock until the sentry closes it. It passes everything that the sentry asks for on to
// the agent. When an agent goes away, relay repeats to the next one what is still unanswered.
func relay(opts Options, sock int, log *slog.Logger) error {
	c, err := first(opts)
	if err != nil {
		return err
	}
	r := newRelayer(opts, log, c)
	go r.receive(c) // ends with the process

	us, err := unet.NewSocket(sock)
	if err != nil {
		return fmt.Errorf("sentry's socket: %w", err)
	}
	fs, err := stateipc.NewAsyncFileServer(r)
	if err != nil {
		return fmt.Errorf("serve the sentry: %w", err)
	}
	s := urpc.NewServer()
	s.Register(fs)
	s.Handle(us) // until the sentry is done, or dead: either way it hangs up, which is the error
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sendLocked(r.ending(), -1)
	return nil
}

// ending returns the message for the agent after the sentry has hung up. The caller holds r.mu.
func (r *relayer) ending() *Message {
	m := &Message{Kind: KindLoaded, Size: uint64(len(r.reads))}
	if r.failed != nil {
		m.Text = r.failed.Error()
	}
	return m
}

// first connects to the agent that ordered the restore, or to the next one if that one has just gone.
func first(opts Options) (*Conn, error) {
	deadline := time.Now().Add(welcomeTime)
	for pauses := retries(); ; time.Sleep(pauses.NextBackOff()) {
		c, err := greet(opts)
		if refused := new(RefusedError); err == nil || errors.As(err, &refused) || time.Now().After(deadline) {
			return c, err
		}
	}
}

// retries returns the pauses between attempts to reach the agent. They are random, so that the sidecars of
// a node do not all come to a new agent at once.
func retries() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: retryFirst, MaxInterval: retryMost, Multiplier: 2, RandomizationFactor: 0.25,
	}
}

// relayer is the sidecar's state: everything that a new agent must be told.
// It implements stateipc.AsyncFileServerImpl.
type relayer struct {
	opts Options
	log  *slog.Logger

	mu     sync.Mutex
	conn   *Conn                // nil: no agent
	absent time.Time            // since when there is no agent
	files  map[uint32]*readFile // by number
	dests  map[uint32]*dest     // by number
	reads  map[uint64]*read     // outstanding, by id
	lastID uint64
	failed error // why the sandbox cannot be restored; nil if no reason is known
}

// dest is a memory file of the sentry.
type dest struct {
	fd     int // our own
	size   uint64
	onDisk bool
	warn   sync.Once  // for the warning that its memory could not be allocated
	done   chan error // the agent's first answer; capacity 1
}

// read is an outstanding read.
type read struct {
	m    Message
	file *readFile
	slot int // the sentry's id
}

func newRelayer(opts Options, log *slog.Logger, c *Conn) *relayer {
	return &relayer{
		opts: opts, log: log, conn: c,
		files: make(map[uint32]*readFile),
		dests: make(map[uint32]*dest),
		reads: make(map[uint64]*read),
	}
}

// Destroy implements stateipc.AsyncFileServerImpl.
func (r *relayer) Destroy() {}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (r *relayer) OpenWrite(string) (stateio.AsyncWriter, error) {
	return nil, errors.New("this is a restore: nothing can be written")
}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (r *relayer) OpenRead(path string) (stateio.AsyncReader, error) {
	r.mu.Lock()
	if len(r.files) >= MaxFiles {
		r.mu.Unlock()
		return nil, fmt.Errorf("more than %d image files opened", MaxFiles)
	}
	f := r.newFileLocked(path)
	r.files[f.number] = f
	r.sendLocked(f.open(), -1)
	r.mu.Unlock()
	if err := wait(f.opened); err != nil {
		return nil, fmt.Errorf("open image file %q: %w", path, err)
	}
	return f, nil
}

// newFileLocked returns the next image file that is opened. The caller holds r.mu.
func (r *relayer) newFileLocked(path string) *readFile {
	return &readFile{
		relayer: r, number: uint32(len(r.files)), path: path,
		lasting: path == checkpointfiles.PagesFileName,
		awaited: r.openedLocked(path),
		opened:  make(chan error, 1),
		done:    make(chan stateio.Completion, MaxParallel),
	}
}

// openedLocked reports whether an image file has been opened already. The caller holds r.mu.
func (r *relayer) openedLocked(path string) bool {
	for _, f := range r.files {
		if f.path == path {
			return true
		}
	}
	return false
}

// wait waits for the agent's answer to an open or a registration.
func wait(answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-time.After(stateTime):
		return fmt.Errorf("no answer from the agent within %v", stateTime)
	}
}

// register announces a memory file to the agent.
func (r *relayer) register(fd int, size uint64) (uint32, error) {
	onDisk, err := checkMemoryFile(fd)
	if err != nil {
		return 0, err
	}
	own, err := dup(fd)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	if len(r.dests) >= MaxDests {
		r.mu.Unlock()
		unix.Close(own)
		return 0, fmt.Errorf("more than %d memory files registered", MaxDests)
	}
	n := uint32(len(r.dests))
	d := &dest{fd: own, size: size, onDisk: onDisk, done: make(chan error, 1)}
	r.dests[n] = d
	r.sendLocked(d.register(n), own)
	r.mu.Unlock()
	return n, wait(d.done)
}

func (d *dest) register(n uint32) *Message {
	return &Message{Kind: KindRegister, ID: uint64(n), Size: d.size}
}

// allocate allocates the memory that a read will fill. An error is noted as the reason why the restore fails.
func (r *relayer) allocate(rd *read, mapped stateio.LocalClientRanges) error {
	r.mu.Lock()
	d := r.dests[rd.m.Dest]
	r.mu.Unlock()
	err := d.allocate(rd.m.Ranges, mapped, r.log)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed = err
	}
	return err
}

// start sends a read to the agent, and keeps it until the agent answers.
func (r *relayer) start(rd *read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	rd.m.ID = r.lastID
	r.reads[rd.m.ID] = rd
	r.sendLocked(&rd.m, -1)
}

// sendLocked sends m to the agent if there is one. Callers need not handle an error: files, dests and reads keep
// what matters, and resume repeats it to the next agent.
//
// The caller holds r.mu, so that a read is sent to an agent at most once. An agent that carried a read out
// twice could overwrite what the application has written in between.
func (r *relayer) sendLocked(m *Message, fd int) {
	if r.conn == nil {
		return
	}
	if err := r.conn.Send(m, fd); err != nil {
		r.conn.Close() // the receiver notices
		r.conn = nil
	}
}

// receive receives the agents' answers, on one connection after the other. It never returns.
func (r *relayer) receive(c *Conn) {
	var m Message
	for {
		f, err := c.Receive(&m)
		if err == nil {
			f.Drop()
			r.answered(&m)
			continue
		}
		r.log.Warn("agent went away", "error", err)
		c.Close()
		r.mu.Lock()
		r.conn, r.absent = nil, time.Now()
		r.mu.Unlock()
		c = r.reconnect()
	}
}

func (r *relayer) answered(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Kind {
	case KindOpened:
		if f := r.files[uint32(m.ID)]; f != nil {
			answer(f.opened, m.Err())
		}
	case KindRegistered:
		if d := r.dests[uint32(m.ID)]; d != nil {
			answer(d.done, m.Err())
		}
	case KindCompleted:
		if rd := r.reads[m.ID]; rd != nil {
			delete(r.reads, m.ID)
			rd.file.complete(rd, m)
		}
	}
}

// answer delivers the first answer. Later ones, after a reconnection, are dropped.
func answer(ch chan error, err error) {
	select {
	case ch <- err:
	default:
	}
}

// reconnect returns a connection to the next agent, which has been told everything. While it tries, it fails the
// reads that may not wait any longer.
func (r *relayer) reconnect() *Conn {
	for pauses := retries(); ; time.Sleep(pauses.NextBackOff()) {
		c, err := greet(r.opts)
		if err == nil {
			if err = r.resume(c); err == nil {
				return c
			}
			c.Close()
		}
		r.log.Info("agent not back yet", "error", err)
		r.giveUp()
	}
}

// resume tells a new agent what the old one knew. It holds r.mu throughout, so that no new read is sent
// before the file and the destination that the read refers to.
func (r *relayer) resume(c *Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		if err := c.Send(f.open(), -1); err != nil {
			return err
		}
	}
	for n, d := range r.dests {
		if err := c.Send(d.register(n), d.fd); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.reads)) {
		if err := c.Send(&r.reads[id].m, -1); err != nil {
			return err
		}
	}
	r.conn = c
	r.log.Info("agent is back", "reads", len(r.reads), "away", time.Since(r.absent))
	return nil
}

// giveUp fails the reads of files that must not wait for ever, once the agent has been away for stateTime.
func (r *relayer) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.absent) < stateTime {
		return
	}
	for id, rd := range r.reads {
		if !rd.file.lasting {
			delete(r.reads, id)
			rd.file.complete(rd, &Message{Text: "the agent did not come back"})
		}
	}
}

package fidelity

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// baton is passed round between players that wait for it in futexes. It lives in memory that all
// of them see.
type baton struct {
	turn uint32 // whose turn it is; the futex
	_    uint32
	seq  uint64 // how often it was passed
}

// gone is the turn when the game is over.
const gone = ^uint32(0)

const (
	futexWait    = 0
	futexWake    = 1
	futexPrivate = 128
)

// errGone ends a player.
var errGone = errors.New("the game is over")

// player is one of those who pass the baton.
type player struct {
	b         *baton
	me, all   uint32
	private   uintptr // futexPrivate within a process, else 0
	passed    func()
	breathing time.Duration // between taking and passing
}

// play passes the baton until the game is over or a number is not the one expected.
func (p player) play() error {
	for want := uint64(p.me); ; want += uint64(p.all) {
		if err := p.await(); err != nil {
			return err
		}
		if got := atomic.LoadUint64(&p.b.seq); got != want {
			return fmt.Errorf("player %d: baton passed %d times, want %d", p.me, got, want)
		}
		time.Sleep(p.breathing)
		atomic.AddUint64(&p.b.seq, 1)
		if !atomic.CompareAndSwapUint32(&p.b.turn, p.me, (p.me+1)%p.all) {
			return errGone
		}
		p.wake()
		p.passed()
	}
}

func (p player) await() error {
	for {
		switch turn := atomic.LoadUint32(&p.b.turn); turn {
		case p.me:
			return nil
		case gone:
			return errGone
		default:
			_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&p.b.turn)), futexWait|p.private, uintptr(turn), 0,
				0, 0)
			if e != 0 && e != unix.EAGAIN && e != unix.EINTR {
				return fmt.Errorf("futex wait: %w", e)
			}
		}
	}
}

func (p player) wake() {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&p.b.turn)), futexWake|p.private, 1<<30, 0, 0, 0)
}

// Close ends the game.
func (p player) Close() error {
	atomic.StoreUint32(&p.b.turn, gone)
	p.wake()
	return nil
}

// sharedFutex passes a baton to and fro with a child, in a shared mapping.
func (s *Suite) sharedFutex() error {
	r := s.record("futex between processes")
	fd, err := unix.MemfdCreate("baton", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "baton")
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	b, err := mapBaton(f)
	if err != nil {
		return err
	}
	p := player{b: b, me: 0, all: 2, passed: r.step, breathing: pace}
	s.closes(p)
	s.run(r, p.play)
	return s.child(r, []*os.File{f}, "futex")
}

func mapBaton(f *os.File) (*baton, error) {
	m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return (*baton)(unsafe.Pointer(unsafe.SliceData(m))), nil
}

func childBaton(f *os.File) error {
	b, err := mapBaton(f)
	if err != nil {
		return err
	}
	return player{b: b, me: 1, all: 2, passed: func() {}}.play()
}

// threads passes a baton round between threads of this process.
func (s *Suite) threads() error {
	r := s.record("futex between threads")
	const players = 4
	b := new(baton)
	for i := range uint32(players) {
		p := player{b: b, me: i, all: players, private: futexPrivate, passed: func() {}}
		if i == 0 {
			p.passed, p.breathing = r.step, pace
			s.closes(p)
		}
		s.run(r, func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			return p.play()
		})
	}
	return nil
}

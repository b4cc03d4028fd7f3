package fidelity

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// period is that of all periodic timers.
const period = 10 * time.Millisecond

// beats judges how often a periodic timer may have gone off: not more than time has passed, and
// not less than had passed when it was last asked.
type beats struct {
	start time.Time
	count int64
}

const (
	// slack is how many beats a timer may be off: its start and its count are not taken at one
	// moment.
	slack = 2
	// late is how many beats a timer may stay behind the clock: in a sandbox that is being
	// restored gVisor's monotonic clock goes on before its timers do, by about 0.1 s. A timer
	// must never be ahead.
	late = 100
)

// add counts n more, asked for at before and answered at after.
func (b *beats) add(n int64, before, after time.Time) error {
	b.count += n
	most, least := int64(after.Sub(b.start)/period)+slack, int64(before.Sub(b.start)/period)-slack-late
	if b.count > most || b.count < least {
		return fmt.Errorf("went off %d times, want %d to %d", b.count, least, most)
	}
	return nil
}

// ticker is the Go runtime's; it may drop ticks, but never adds one.
func (s *Suite) ticker() error {
	r := s.record("ticker")
	s.run(r, func() error {
		t := time.NewTicker(period)
		defer t.Stop()
		b := beats{start: time.Now()}
		for {
			select {
			case <-s.ctx.Done():
				return nil
			case <-t.C:
			}
			if err := b.add(1, b.start, time.Now()); err != nil {
				return err
			}
			r.step()
		}
	})
	return nil
}

// due waits for one timer after the other; each goes off once, and not early.
func (s *Suite) due() error {
	const wait = 700 * time.Millisecond
	r := s.record("timer due later")
	s.run(r, func() error {
		for {
			fired, begun := make(chan time.Time, 2), time.Now()
			t := time.AfterFunc(wait, func() { fired <- time.Now() })
			select {
			case <-s.ctx.Done():
				t.Stop()
				return nil
			case at := <-fired:
				if d := at.Sub(begun); d < wait-time.Millisecond {
					return fmt.Errorf("went off after %v, want %v", d, wait)
				}
			}
			if t.Stop() || len(fired) > 0 {
				return fmt.Errorf("goes off twice")
			}
			r.step()
		}
	})
	return nil
}

// timerFD is the kernel's periodic timer; it counts every beat, read or not.
func (s *Suite) timerFD() error {
	r := s.record("timerfd")
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	s.closes(f)
	each := unix.NsecToTimespec(int64(period))
	b := beats{start: time.Now()}
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	s.run(r, func() error {
		var n [8]byte
		for {
			before := time.Now()
			if _, err := f.Read(n[:]); err != nil {
				return fmt.Errorf("read: %w", err)
			}
			count := int64(binary.NativeEndian.Uint64(n[:]))
			if err := b.add(count, before, time.Now()); err != nil {
				return err
			}
			r.progress.Add(count)
		}
	})
	return nil
}

// alarm is the interval timer that sends a signal. Signals may merge, so they are not counted
// against time.
func (s *Suite) alarm() error {
	r := s.record("itimer")
	each := unix.NsecToTimeval(int64(2 * period))
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGALRM)
	if _, err := unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{Interval: each, Value: each}); err != nil {
		return fmt.Errorf("setitimer: %w", err)
	}
	s.run(r, func() error {
		defer signal.Stop(c)
		for {
			select {
			case <-s.ctx.Done():
				_, err := unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{})
				return err
			case <-c:
			}
			if t, err := unix.Getitimer(unix.ITIMER_REAL); err != nil || t.Interval != each {
				return fmt.Errorf("interval is %v, want %v: %v", t.Interval, each, err)
			}
			r.step()
		}
	})
	return nil
}

package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sandbox records what is done to it.
type sandbox struct {
	mu    sync.Mutex
	done  []string
	fails int // how many resumes fail
}

func (s *sandbox) note(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == "resume" && s.fails > 0 {
		s.fails--
		return errors.New("not now")
	}
	s.done = append(s.done, what)
	return nil
}

func (s *sandbox) Pause(context.Context) error  { return s.note("pause") }
func (s *sandbox) Resume(context.Context) error { return s.note("resume") }
func (s *sandbox) Kill() error                  { return s.note("kill") }

func (s *sandbox) was(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.done, want) {
		t.Errorf("done to the sandbox: %q, want %q", s.done, want)
	}
}

func do(t *testing.T, l *Lease, want error, verb Verb, holder string) {
	t.Helper()
	err := l.Do(t.Context(), Request{Verb: verb, Holder: holder, For: 10 * time.Second})
	if !errors.Is(err, want) {
		t.Errorf("%s by %s: %v, want %v", verb, holder, err, want)
	}
}

// within runs f with a lease in a synctest bubble, where time advances by itself.
func within(t *testing.T, f func(t *testing.T, s *sandbox, l *Lease)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sandbox{}
		l := New(s, func(what string, err error) { t.Log(what, err) })
		f(t, s, l)
		l.Close()
	})
}

func TestLeaseThatIsNotRenewedEndsThePause(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		do(t, l, nil, Pause, "a")
		time.Sleep(9 * time.Second)
		s.was(t, "pause")
		time.Sleep(2 * time.Second)
		s.was(t, "pause", "resume")
		do(t, l, ErrRanOut, Renew, "a")
		do(t, l, ErrRanOut, Kill, "a")
		s.was(t, "pause", "resume")
	})
}

func TestLeaseThatIsRenewedLasts(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		do(t, l, nil, Pause, "a")
		for range 10 {
			time.Sleep(9 * time.Second)
			do(t, l, nil, Renew, "a")
		}
		s.was(t, "pause")
		do(t, l, nil, Kill, "a")
		time.Sleep(time.Minute)
		s.was(t, "pause", "kill")
	})
}

// TestKilledTwice: an agent that takes over asks again for what the one before has asked for. It must not hear that the
// sandbox has run on.
func TestKilledTwice(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		do(t, l, nil, Pause, "a")
		do(t, l, nil, Kill, "a")
		do(t, l, nil, Kill, "a")
		do(t, l, ErrRanOut, Kill, "b")
		do(t, l, ErrRanOut, Renew, "a")
		l.Close()
		do(t, l, nil, Kill, "a")
		do(t, l, ErrRanOut, Resume, "a")
		s.was(t, "pause", "kill")
	})
}

func TestLeaseThatIsGivenBack(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		do(t, l, nil, Pause, "a")
		do(t, l, nil, Resume, "a")
		time.Sleep(time.Minute)
		s.was(t, "pause", "resume")
		do(t, l, nil, Pause, "b")
		do(t, l, ErrRanOut, Kill, "a")
		do(t, l, ErrInvalid, Pause, "a")
		do(t, l, nil, Kill, "b")
		s.was(t, "pause", "resume", "pause", "kill")
	})
}

func TestResumeByOthersEndsTheLease(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		do(t, l, nil, Pause, "a")
		if err := l.Free(t.Context(), func() error { return s.note("others") }); err != nil {
			t.Error(err)
		}
		do(t, l, ErrRanOut, Kill, "a")
		time.Sleep(time.Minute)
		s.was(t, "pause", "others")
	})
}

// TestBroken: what nobody holds is left alone, and a sandbox that cannot be resumed is resumed when its lease runs out.
func TestBroken(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		if err := l.Break(t.Context()); err != nil {
			t.Error(err)
		}
		s.was(t)
		do(t, l, nil, Pause, "a")
		if err := l.Break(t.Context()); err != nil {
			t.Error(err)
		}
		do(t, l, ErrRanOut, Renew, "a")
		do(t, l, ErrRanOut, Kill, "a")
		s.was(t, "pause", "resume")
		s.fails = 1
		do(t, l, nil, Pause, "b")
		if err := l.Break(t.Context()); err == nil {
			t.Error("broken, though the sandbox is paused")
		}
		time.Sleep(time.Minute)
		s.was(t, "pause", "resume", "pause", "resume")
	})
}

// TestResumeFails: the lease of a sandbox that could not be resumed is still held, so that its holder can try again.
func TestResumeFails(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		held := func(want bool) {
			t.Helper()
			if got := l.Held(); got != want {
				t.Errorf("held: %v, want %v", got, want)
			}
		}
		held(false)
		do(t, l, nil, Pause, "a")
		s.fails = 2
		if err := l.Do(t.Context(), Request{Verb: Resume, Holder: "a"}); err == nil || errors.Is(err, ErrRanOut) {
			t.Errorf("resumed: %v", err)
		}
		held(true)
		if err := l.Free(t.Context(), func() error { return s.note("resume") }); err == nil {
			t.Error("resumed by others")
		}
		held(true)
		do(t, l, nil, Resume, "a")
		held(false)
		s.was(t, "pause", "resume")
	})
}

func TestResumeIsTriedAgain(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		s.fails = 3
		do(t, l, nil, Pause, "a")
		time.Sleep(20 * time.Second)
		s.was(t, "pause", "resume")
	})
}

func TestCloseEndsAResumeThatFails(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		s.fails = 1 << 30
		do(t, l, nil, Pause, "a")
		time.Sleep(20 * time.Second)
		l.Close()
		s.was(t, "pause")
	})
}

// TestGivenUp: nothing is begun for a caller that no longer waits.
func TestGivenUp(t *testing.T) {
	within(t, func(t *testing.T, s *sandbox, l *Lease) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // a select of what is ready chooses at random
			err := l.Do(ctx, Request{Verb: Pause, Holder: "a", For: 10 * time.Second})
			if !errors.Is(err, context.Canceled) || l.Held() {
				t.Fatalf("paused: %v, held: %v", err, l.Held())
			}
		}
		s.was(t)
	})
}

func TestParse(t *testing.T) {
	for _, r := range []Request{{Pause, "a", time.Second}, {Renew, "a", Longest}, {Kill, "a", 0}, {Resume, "a", 0}} {
		if got, err := Parse(r.String()); err != nil || got != r {
			t.Errorf("%+v comes back as %+v, %v", r, got, err)
		}
	}
	for _, s := range []string{
		"", "{}", `{"verb":"pause","holder":"a"}`, `{"verb":"pause","holder":"a","for":-1}`, `{"verb":"pause","for":1}`,
		`{"verb":"renew","holder":"a","for":9000000000000}`, `{"verb":"die","holder":"a"}`,
	} {
		if r, err := Parse(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is %+v, %v", s, r, err)
		}
	}
}

package sleepstate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// grid has, for each state, where each event leads; "-" where it is an error.
const grid = `
                arm    disarm  enter           abort  sleep   ask           wake    woke   fail    exit
awake           armed  awake   -               -      -       -             -       -      -       -
armed           armed  awake   entering_sleep  -      -       -             -       -      -       -
entering_sleep  -      -       -               armed  asleep  -             -       -      -       -
asleep          -      -       -               -      -       wake_pending  -       -      -       exited
wake_pending    -      -       -               -      -       wake_pending  waking  -      -       exited
waking          -      -       -               -      -       -             -       awake  asleep  exited
exited          -      exited  -               -      -       -             -       -      -       -
`

// path has, for each state, events that lead to it from the beginning.
var path = [states][]Event{
	Awake:         nil,
	Armed:         {Arm},
	EnteringSleep: {Arm, Enter},
	Asleep:        {Arm, Enter, Sleep},
	WakePending:   {Arm, Enter, Sleep, Ask},
	Waking:        {Arm, Enter, Sleep, Ask, Wake},
	Exited:        {Arm, Enter, Sleep, Exit},
}

// in returns a machine in a state.
func in(t *testing.T, s State, moved func(from, to State)) *Machine {
	t.Helper()
	m := New(nil)
	for _, e := range path[s] {
		if err := m.Move(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if m.Now() != s {
		t.Fatalf("%v leads to %v, want %v", path[s], m.Now(), s)
	}
	m.moved = moved
	return m
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestEveryEvent has each event happen in each state: it leads where the grid says, or is an error that changes
// nothing. Requests pass the gate where a sandbox runs, and a sleep is over once there is one, or never will be.
func TestEveryEvent(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(grid), "\n")
	names := strings.Fields(rows[0])
	if len(names) != int(events) || len(rows) != int(states)+1 {
		t.Fatalf("the grid has %d events and %d states", len(names), len(rows)-1)
	}
	for s := range states {
		cells := strings.Fields(rows[1+s])
		if cells[0] != strings.ReplaceAll(s.String(), " ", "_") {
			t.Fatalf("row %d is %q, want %v", s, cells[0], s)
		}
		for e := range events {
			if names[e] != e.String() {
				t.Fatalf("column %d is %q, want %v", e, names[e], e)
			}
			changes := 0
			m := in(t, s, func(from, to State) {
				if changes++; from != s || to == s {
					t.Errorf("%v in %v: told of %v to %v", e, s, from, to)
				}
			})
			err := m.Move(t.Context(), e)
			want := strings.ReplaceAll(cells[1+e], "_", " ")
			if want == "-" {
				if !errors.Is(err, ErrState) {
					t.Errorf("%v in %v: %v", e, s, err)
				}
				want = s.String()
			} else if err != nil {
				t.Errorf("%v in %v: %v", e, s, err)
			}
			if m.Now().String() != want || (changes == 1) != (m.Now() != s) {
				t.Errorf("%v in %v: %v, want %s; told %d times", e, s, m.Now(), want, changes)
			}
			m.check(t)
		}
	}
}

// check checks the gate and the end of the sleep.
func (m *Machine) check(t *testing.T) {
	t.Helper()
	s := m.Now()
	answered := s == EnteringSleep || s == Asleep || s == WakePending || s == Waking
	release, ok := m.Through()
	if ok {
		release()
	}
	if ok == answered || m.Answered() != answered {
		t.Errorf("%v: a request goes through: %v", s, ok)
	}
	if over := closed(m.Over()); over == (s == Asleep || s == WakePending || s == Waking) {
		t.Errorf("%v: its sleep is over: %v", s, over)
	}
}

// TestGate: a pod does not begin to sleep while a request is under way, and others go through as long as it waits.
func TestGate(t *testing.T) {
	m := in(t, Armed, nil)
	release, ok := m.Through()
	if !ok {
		t.Fatal("a request does not go through")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.Move(ctx, Enter); !errors.Is(err, context.DeadlineExceeded) || m.Now() != Armed {
		t.Errorf("%v, %v", m.Now(), err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Move(context.Background(), Enter) }()
	other, ok := m.Through()
	if !ok {
		t.Fatal("a request that waits keeps another out")
	}
	other()
	release()
	if err := <-done; err != nil || !m.Answered() {
		t.Errorf("%v, %v", m.Now(), err)
	}
}

// TestTurn: one has the turn, and another gets it later.
func TestTurn(t *testing.T) {
	m := New(nil)
	give, err := m.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	cancel(ended)
	if _, err := m.Take(ctx); !errors.Is(err, ended) {
		t.Errorf("two have the turn: %v", err)
	}
	give()
	if give, err = m.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	give()
}

// TestSecondSleep: each sleep has its own end.
func TestSecondSleep(t *testing.T) {
	m := in(t, Asleep, nil)
	first := m.Over()
	for _, e := range []Event{Ask, Wake, Woke, Arm, Enter, Sleep} {
		if err := m.Move(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if !closed(first) || closed(m.Over()) {
		t.Errorf("the first sleep is over: %v; the second: %v", closed(first), closed(m.Over()))
	}
}

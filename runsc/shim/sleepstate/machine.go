// Package sleepstate is the state machine of a pod's sleep: the states that a pod can be in, what moves it from one to
// the next, and the gate where requests for its sandbox either pass or are answered by the shim.
package sleepstate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// State is where a pod is in its sleep.
type State uint32

// The states of a pod. Its end while it is awake is none of them: gVisor's shim sees to that.
const (
	Awake         State = iota // its sandbox runs
	Armed                      // its sandbox runs or is being saved; the shim watches whether packets come
	EnteringSleep              // its sandbox is paused, and the shim answers for it; this can be undone
	Asleep                     // it has no sandbox
	WakePending                // it is to be woken, and waits for memory or for the agent
	Waking                     // its sandbox is being restored
	Exited                     // its containers have ended in its sleep, or when it could not be woken
	states
)

// Event is what may move a pod to another state.
type Event uint32

// The events.
const (
	Arm    Event = iota // the agent wants it to sleep soon
	Disarm              // it is to stay awake, or nobody has had it sleep in time
	Enter               // the agent has it sleep: its snapshot is safe
	Abort               // it cannot sleep now: a packet came, or something else stood in the way
	Sleep               // its sandbox was killed
	Ask                 // a packet, a request or the agent wants it awake
	Wake                // the agent admits its wake
	Woke                // its sandbox runs
	Fail                // its sandbox could not be restored, and has not run
	Exit                // its containers are to end, or its sandbox ended while it was restored
	events
)

// after is where each event leads. An event that a state does not have is an error there, and changes nothing.
var after = [states]map[Event]State{
	Awake:         {Arm: Armed, Disarm: Awake},
	Armed:         {Arm: Armed, Disarm: Awake, Enter: EnteringSleep},
	EnteringSleep: {Abort: Armed, Sleep: Asleep},
	Asleep:        {Ask: WakePending, Exit: Exited},
	WakePending:   {Ask: WakePending, Wake: Waking, Exit: Exited},
	Waking:        {Woke: Awake, Fail: Asleep, Exit: Exited},
	Exited:        {Disarm: Exited},
}

var stateNames = [states]string{
	"awake", "armed", "entering sleep", "asleep", "wake pending", "waking", "exited",
}

var eventNames = [events]string{
	"arm", "disarm", "enter", "abort", "sleep", "ask", "wake", "woke", "fail", "exit",
}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// String returns the event's name.
func (e Event) String() string { return eventNames[e] }

// answered reports whether the shim answers for the sandbox.
func (s State) answered() bool { return s >= EnteringSleep && s <= Waking }

// ErrState is the kind of error for an event that the pod's state does not have.
var ErrState = errors.New("the pod's state does not allow that")

// Machine is the state of one pod. Its methods may be called concurrently.
type Machine struct {
	turn  chan struct{} // holds one token while somebody has the turn
	gate  sync.RWMutex  // held for reading by requests that reach gVisor, for writing when that changes
	state atomic.Uint32
	moved func(from, to State)

	mu   sync.Mutex
	over chan struct{} // closed when the sleep ends that has begun last
}

// New returns the machine of a pod that is awake. It calls moved, if that is not nil, after each change of the state,
// while the mover has the turn.
func New(moved func(from, to State)) *Machine {
	over := make(chan struct{})
	close(over)
	return &Machine{turn: make(chan struct{}, 1), moved: moved, over: over}
}

// Take takes the turn, which whoever moves the pod must have. It waits for that as long as ctx lasts. Who has the turn
// calls give in the end.
func (m *Machine) Take(ctx context.Context) (give func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("it is going to sleep or waking: %w", context.Cause(ctx))
	}
}

// Now returns the state. Without the turn it may change at any time.
func (m *Machine) Now() State { return State(m.state.Load()) }

// Answered reports whether the shim answers for the sandbox, and no request reaches gVisor.
func (m *Machine) Answered() bool { return m.Now().answered() }

// Through lets a request through to gVisor, unless the shim answers for the sandbox. If ok, release must be called
// after the request.
func (m *Machine) Through() (release func(), ok bool) {
	m.gate.RLock()
	if m.Answered() {
		m.gate.RUnlock()
		return nil, false
	}
	return m.gate.RUnlock, true
}

// Over returns a channel that is closed once the sleep has ended that has begun last.
func (m *Machine) Over() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// gatePoll is how often a move tries the gate.
const gatePoll = time.Millisecond

// Move moves the pod by an event. The caller has the turn. If requests pass the gate from then on, or no longer, Move
// waits until none is under way, for as long as ctx lasts. Other requests are answered meanwhile. After an error the
// state is what it was. The error is of kind [ErrState] if the event does not fit it.
func (m *Machine) Move(ctx context.Context, e Event) error {
	from := m.Now()
	to, ok := after[from][e]
	if !ok {
		return fmt.Errorf("%w: %v, while it is %v", ErrState, e, from)
	}
	if from.answered() != to.answered() {
		if err := m.lock(ctx); err != nil {
			return err
		}
		defer m.gate.Unlock()
	}
	m.mark(from, to)
	m.state.Store(uint32(to))
	if m.moved != nil && from != to {
		m.moved(from, to)
	}
	return nil
}

// lock closes the gate.
func (m *Machine) lock(ctx context.Context) error {
	for !m.gate.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a request is in progress: %w", context.Cause(ctx))
		case <-time.After(gatePoll):
		}
	}
	return nil
}

// mark begins or ends a sleep.
func (m *Machine) mark(from, to State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case from == EnteringSleep && to == Asleep:
		m.over = make(chan struct{})
	case from.asleep() && !to.asleep():
		close(m.over)
	}
}

// asleep reports whether the pod has no sandbox that runs.
func (s State) asleep() bool { return s >= Asleep && s <= Waking }

package sleep

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/runsc/traffic"
)

// Annotation is the key of an [Order] among the annotations of containerd's call Update. The call carries no resources,
// so that a shim that knows no sleep refuses it as an invalid argument.
const Annotation = "diapause.dev/sleep-order"

// ErrInvalid is the kind of error for a malformed order.
var ErrInvalid = errors.New("invalid order about a pod's sleep")

// ErrTraffic is the kind of error for a pod that did not fall asleep because a packet came for it, a client waits for
// its answer, or somebody woke it. It runs on.
var ErrTraffic = errors.New("packets came for the pod, a client waits for its answer, or it was woken")

// ErrUnfit is the kind of error for a pod that cannot sleep now, or never. It runs on.
var ErrUnfit = errors.New("the pod cannot sleep")

// ErrInUse is the kind of error for a pod that cannot sleep now because somebody uses it. It runs on.
var ErrInUse = errors.New("the pod is in use")

// Brief returns an error of the same kind with the first line of its text. What a shim has said comes with the names of
// its kinds, each on a line of its own.
func Brief(err error) error {
	if err == nil {
		return nil
	}
	return brief{err}
}

type brief struct{ error }

func (b brief) Error() string {
	text, _, _ := strings.Cut(b.error.Error(), "\n")
	return text
}

func (b brief) Unwrap() error { return b.error }

// Verb is what an order asks for.
type Verb string

// Orders of the agent to the shim of a pod's sandbox.
const (
	Watch Verb = "watch" // prepare to sleep, and note from now on whether packets come for the pod
	Fall  Verb = "fall"  // end the sandbox, which Holder has paused and whose snapshot is safe, and keep the pod
	Stay  Verb = "stay"  // undo Watch
	Wake  Verb = "wake"  // restore the sandbox, and return when it runs
	End   Verb = "end"   // the pod ends in its sleep, with Status
	// MakeReady has the sandbox of a pod that sleeps created, so that its wake need not do so, and with Load its kernel
	// loaded. DropReady undoes that.
	MakeReady Verb = "ready"
	DropReady Verb = "unready"
	Count     Verb = "count" // count from now on the packets that come for the pod, less those of Ignored: see package use
	// Senders has the shim watch for some seconds who sends packets to the pod, less those of Ignored: see package use.
	Senders Verb = "senders"
	// Answers has the shim return an error of kind ErrTraffic if a client waits for an answer: see Order.AnswerWithin.
	Answers Verb = "answers"
)

// Order is an order about a pod's sleep.
type Order struct {
	Verb       Verb     `json:"verb"`
	Holder     string   `json:"holder,omitempty"`     // of Fall: who holds the lease of the pause
	Image      string   `json:"image,omitempty"`      // of Fall: the image path of the restore that wakes the pod
	Containers []string `json:"containers,omitempty"` // of Watch: ids of all containers that run, without the sandbox
	// Ignored, of Watch: what does not keep the pod from falling asleep, and does not wake it. Of Count and Senders: what
	// does not count.
	Ignored []traffic.Ignored `json:"ignored,omitempty"`
	// AnswerWithin, of Watch and Answers: for how long a request counts as use of the pod if it is not answered, in
	// nanoseconds. 0: not at all. gVisor's own build does not tell. Of Answers, what Ignored says does not count.
	AnswerWithin time.Duration `json:"answerWithin,omitempty"`
	WakeToEnd    bool          `json:"wakeToEnd,omitempty"` // of Fall: a signal that tells the pod to end wakes it first
	Cause        string        `json:"cause,omitempty"`     // of Wake
	Load         bool          `json:"load,omitempty"`      // of MakeReady: with the repaired build of runsc alone
	Status       int           `json:"status,omitempty"`    // exit status, of End
	// Asleep, of End: if the pod is awake, that is an error of kind ErrUnfit, and the pod runs on.
	Asleep bool `json:"asleep,omitempty"`
}

// Bounds of an order.
const (
	maxOrder      = 64 << 10 // bytes
	maxContainers = 200
	maxID         = 128
)

// Parse parses what String has written.
func Parse(s string) (o Order, err error) {
	if len(s) > maxOrder {
		return o, fmt.Errorf("%w: %d bytes, want at most %d", ErrInvalid, len(s), maxOrder)
	}
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		return o, fmt.Errorf("%w: %.200q: %w", ErrInvalid, s, err)
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("%w: %.200q: %w", ErrInvalid, s, err)
	}
	return o, nil
}

func (o Order) check() error {
	switch o.Verb {
	case Watch, Stay, Wake, MakeReady, DropReady, Count, Senders, Answers:
	case End:
		if o.Status < 0 || o.Status > 255 {
			return fmt.Errorf("exit status %d", o.Status)
		}
	case Fall:
		if o.Holder == "" || !filepath.IsAbs(o.Image) {
			return errors.New("no holder, or no absolute image path")
		}
	default:
		return errors.New("unknown verb")
	}
	if o.AnswerWithin < 0 {
		return fmt.Errorf("an answer within %s", o.AnswerWithin)
	}
	if len(o.Containers) > maxContainers {
		return fmt.Errorf("%d containers, want at most %d", len(o.Containers), maxContainers)
	}
	if _, err := traffic.NewFilter(o.Ignored); err != nil {
		return err
	}
	for _, id := range o.Containers {
		if id == "" || len(id) > maxID || filepath.Base(id) != id || id == "." || id == ".." {
			return fmt.Errorf("container %.40q", id)
		}
	}
	return nil
}

// String returns the order as Parse reads it.
func (o Order) String() string {
	data, _ := json.Marshal(o) // only strings and numbers: it cannot fail
	return string(data)
}

// Package answers holds what the workload answers, in JSON, as it is written and as it is read.
package answers

import "time"

// State is the answer to GET /state: what a life of the workload looks like from outside.
type State struct {
	Boot    string            `json:"boot"`    // random, drawn at start
	Counter int64             `json:"counter"` // grows by one every [Tick]
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Env     map[string]string `json:"env"` // PATH and all that begins with WORKLOAD_
	Now     time.Time         `json:"now"`
}

// Tick is how often the counter of a life grows by one.
const Tick = 10 * time.Millisecond

// OwnTCP and OwnUDP are the ports at which a workload answers at its pod's own address, after POST /own.
const (
	OwnTCP = 7000
	OwnUDP = 8125
)

// Count is the answer to POST /count of the mode rest.
type Count struct {
	Boot  string `json:"boot"`  // as in [State]
	Count int64  `json:"count"` // how many such requests this life has answered, this one included
}

// Gaps is the answer to GET /gap: all that was seen since the last reset.
type Gaps struct {
	MaxMS float64 `json:"max_gap_ms"`
	At    int64   `json:"at"` // start_unix_ns of the longest
	Gaps  []Gap   `json:"gaps"`
}

// Gap is a time in which the workload did not run.
type Gap struct {
	StartUnixNS int64   `json:"start_unix_ns"` // wall clock before it
	MS          float64 `json:"ms"`            // by the monotonic clock
	WallMS      float64 `json:"wall_ms"`       // by the wall clock, which jumps when a snapshot is restored
}

// Start is when the workload ran last.
func (g Gap) Start() time.Time { return time.Unix(0, g.StartUnixNS) }

// Took is how long it did not run.
func (g Gap) Took() time.Duration { return time.Duration(g.MS * float64(time.Millisecond)) }

// End is when it ran again.
func (g Gap) End() time.Time { return g.Start().Add(g.Took()) }

// Memory is the answer to GET /verify of the mode serve: the result of a check of its memory.
type Memory struct {
	OK       bool     `json:"ok"`
	Pages    int      `json:"pages"`
	Bad      int      `json:"bad"`
	Problems []string `json:"problems,omitempty"` // the first few
}

// Touched is the answer to GET /touch of the mode serve.
type Touched struct {
	Pages int    `json:"pages"` // how many pages were read
	Sum   uint64 `json:"sum"`   // of a word of each
}

// Loop is the answer to GET /loop of the mode serve: the last passes of a loop that reads all memory.
type Loop struct {
	Passes []Pass `json:"passes"`
}

// Pass is one time that all memory was read.
type Pass struct {
	StartUnixNS int64   `json:"start_unix_ns"`
	MS          float64 `json:"ms"`
}

// Start is when the pass began.
func (p Pass) Start() time.Time { return time.Unix(0, p.StartUnixNS) }

// Took is how long the pass took.
func (p Pass) Took() time.Duration { return time.Duration(p.MS * float64(time.Millisecond)) }

// End is when the pass was over.
func (p Pass) End() time.Time { return p.Start().Add(p.Took()) }

// Work is the answer to GET /work of the mode serve: how far work had come at some instants, in their order.
type Work struct {
	Notes []Done `json:"notes"`
}

// Done is how far work had come at an instant.
type Done struct {
	UnixNS int64 `json:"unix_ns"`
	Pieces int64 `json:"pieces"` // since it began
}

// At is the instant.
func (d Done) At() time.Time { return time.Unix(0, d.UnixNS) }

// Order is the answer to GET /verify of the mode order.
type Order struct {
	OK    bool     `json:"ok"`
	Pages int      `json:"pages"`
	Round uint64   `json:"round"`
	Next  int      `json:"next"`
	Bad   int      `json:"bad"` // pages that do not fit the position now
	Now   []string `json:"now,omitempty"`
	Found Findings `json:"found"` // on the way so far
}

// Findings is what the writer of the mode order found wrong on its way.
type Findings struct {
	Writes int64    `json:"writes"`
	Bad    int64    `json:"bad"`
	First  []string `json:"first,omitempty"` // the first few
}

// Check is one of those in the answer to GET /report of the mode fidelity.
type Check struct {
	Check    string `json:"check"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail,omitempty"` // the first thing that went wrong
	Progress int64  `json:"progress"`         // grows while the check runs
}

// Files is the answer to POST /files and GET /files of the mode serve.
type Files struct {
	Open int `json:"open"` // files that are open, each with its own content
}

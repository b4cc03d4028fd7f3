package loading

import (
	"time"

	"diapause.dev/runsc/gofer"
)

// A sandbox that is restored loads three things: what it waits for, what it will soon wait for, and all the rest, which
// it loads ahead of need. They share processors, or the wire to a store. The rest has to wait for the others. But a
// sandbox of unmodified runsc asks for what it waits for only once some read of its has ended. So over a wire the rest
// goes on slowly, in small reads. One of the repaired build asks at once, and is told what it will soon wait for, as
// far as that is known: it loads that before the rest.

// policy says how fast sandboxes load ahead of need.
type policy struct {
	// startPause is between two reads ahead of need over a wire, until the sandbox waits for something for the first
	// time, or for startTime: no task runs yet. What is there already is kept for later.
	startPause, startTime time.Duration
	// needPause is between two reads ahead of need over a wire, while the sandbox waits for something, or while what it
	// will soon wait for is fetched.
	needPause time.Duration
	// herePause is the same if the second read is of what has been fetched already: it costs no wire, and the sandbox
	// asks for what it waits for once the read has ended.
	herePause time.Duration
	// promptPause is between two reads ahead of need from this node, while a sandbox waits that asks for what it waits for
	// at once, and that has been told what it will wait for. The others load all as fast as they can: real programs under
	// load wait for much of it.
	promptPause time.Duration
	// needTime is how long there is need after the sandbox has last waited for something.
	needTime time.Duration
	// nodePause is between two reads ahead of need from this node, while another sandbox has need, or while one is being
	// created, for which createTime is allowed. They need the processors more.
	nodePause, createTime time.Duration
	// mostRest is how long one read ahead of need from this node is followed by none, at most, while what else runs on
	// the node needs the processors. A task that goes through memory in order may wait for such reads, too: they lie
	// where the sandbox would load ahead of need.
	mostRest time.Duration
}

// standard is the policy of every node.
var standard = policy{
	startPause:  10 * time.Millisecond,
	startTime:   500 * time.Millisecond,
	needPause:   5 * time.Millisecond,
	herePause:   time.Millisecond,
	promptPause: 2 * time.Millisecond,
	needTime:    100 * time.Millisecond,
	nodePause:   20 * time.Millisecond,
	createTime:  500 * time.Millisecond,
	mostRest:    10 * time.Millisecond,
}

// situation is what decides how a sandbox loads ahead of need.
type situation struct {
	onNode   bool // the snapshot is on this node
	there    bool // the next read is of what has been fetched or decoded already
	expected bool // the sandbox asks at once, and will wait for what it reads next unless that is loaded before
	fetching bool // what restores of this snapshot wait for is being fetched
	needed   bool // the sandbox waits for something, or has lately
	starts   bool // the sandbox has only begun to load
	patient  bool // the sandbox asks at once, and has been told what it will wait for
	urgent   bool // somebody waits until the sandbox has everything
	hurry    bool // some sandbox of this node needs the processors
}

// pace returns how a sandbox loads ahead of need.
func (p *policy) pace(s situation) gofer.Pace {
	switch {
	case s.expected && (s.there || s.onNode || s.fetching):
		return p.expectedPace(s.there || s.needed && s.onNode, s.onNode)
	case s.onNode:
		return p.nodePace(s)
	case s.starts:
		return gofer.Pace{Pause: p.startPause}
	case !s.needed && !s.fetching:
		return gofer.Pace{}
	case s.there:
		return gofer.Pace{Pause: p.herePause}
	}
	return gofer.Pace{Pause: p.needPause}
}

// expectedPace is pace for what the sandbox will wait for unless it is loaded before. It is in memory, or on the node,
// or on its way there. Now means that it has to wait neither for that nor for other pods.
func (p *policy) expectedPace(now, onNode bool) gofer.Pace {
	switch {
	case now:
		return gofer.Pace{Turns: true}
	case onNode:
		return gofer.Pace{Turns: true, GivesWay: true}
	}
	return gofer.Pace{Pause: p.herePause}
}

// nodePace is pace for a snapshot on the node. A sandbox that is patient asks at once for what it waits for, and waits
// for little of what it asks for ahead of need.
func (p *policy) nodePace(s situation) gofer.Pace {
	switch {
	case s.urgent || s.needed && !s.patient:
		return gofer.Pace{Turns: true}
	case s.needed:
		return gofer.Pace{Pause: p.promptPause, Turns: true}
	case s.hurry:
		return gofer.Pace{Pause: p.nodePause, Turns: true, GivesWay: true}
	}
	return gofer.Pace{Turns: true, GivesWay: true}
}

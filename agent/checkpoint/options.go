package checkpoint

import (
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/traffic"
)

// Options say what to checkpoint and what to do with the sandbox afterwards.
type Options struct {
	Target string // as cri.Client.Find takes it
	Name   string // of the snapshot; empty: a name is made when the sandbox's turn comes
	Stop   bool   // stop the sandbox once the snapshot is spooled
	// Scope is how much of the pod is kept. The default is the whole pod, unless the cluster's Description says less.
	Scope snapshot.Scope
	// Completed makes the containers of a stopped sandbox report exit status 0, rather than that of a process killed by
	// SIGKILL.
	Completed bool
	// Ending says that the pod is being ended anyway, at the deadline of ctx. Its containers then report the exit status
	// of a process ended by SIGTERM, and the cluster's confirmation is not required. Stop must be set.
	Ending bool
	// NoWait makes Checkpoint return once the snapshot is restorable on this node.
	NoWait bool
	// Progress, if set, is called with the progress of a stage, in bytes of the raw image. total is 0 while it is unknown.
	// Progress is called from several goroutines.
	Progress func(stage string, done, total int64)
	// Named, if set, makes the snapshot's name. It is called in the sandbox's turn, so names may show the snapshots'
	// order.
	Named func() (string, error)
	// Handover, if set, takes the sandbox over once the snapshot is spooled. Stop must not be set.
	Handover Handover
	// WakeToEnd has a pod that falls asleep be woken when it is told to end, so that its shutdown runs.
	WakeToEnd bool
	// Ignored does not keep a pod from falling asleep, and does not wake it.
	Ignored []traffic.Ignored
	// AnswerWithin is for how long a request that is not answered keeps a pod from falling asleep. 0: it does not.
	AnswerWithin time.Duration
	// sentry, if set, is a sentry that has started the save by itself.
	sentry *sentry
	// Accepted and Spooled, if set, are called once each when the request has come that far. A warning says what a restore
	// will not bring back, or may not notice.
	Accepted func(request string)
	Spooled  func(f *snapshots.Found, warning string)
}

// purpose returns what the snapshot is for. That of a sleep for which somebody has chosen a name is one that somebody
// asked for.
func (o *Options) purpose() snapshot.Purpose {
	switch {
	case o.Ending:
		return snapshot.ForTermination
	case o.Handover != nil && o.Name == "":
		return snapshot.ForSleep
	}
	return snapshot.ForCheckpoint
}

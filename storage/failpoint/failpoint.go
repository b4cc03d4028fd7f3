// Package failpoint names the steps at which a process that changes a store may die, and lets a test kill it there. The
// list reads like the protocol: it says what is durable at each step, and what is not yet.
//
// Nothing happens unless the process has called Arm, as processes of tests do, and Variable in its environment names a
// step.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Point is a step.
type Point string

// The steps of a write, in order.
const (
	PackSealed     Point = "pack sealed"     // in memory; the store has not changed yet
	ObjectWritten  Point = "object written"  // dir: the bytes are in a temporary file, which has no name yet
	ObjectLinked   Point = "object linked"   // dir: the object has its name, but a power failure may undo that
	PackCreated    Point = "pack created"    // durable; no manifest names it
	PacksComplete  Point = "packs complete"  // everything that the manifest will name is durable
	ObjectsClaimed Point = "objects claimed" // sweeps that give notice later spare what the manifest will name
	// No sweep has condemned what the manifest names; the next step makes the snapshot exist.
	ManifestReady     Point = "manifest ready"
	ManifestMade      Point = "manifest made"      // the snapshot exists
	SnapshotConfirmed Point = "snapshot confirmed" // no sweep has deleted, or is deleting, what it names
	SnapshotBroken    Point = "snapshot broken"    // a writer gives up and is about to remove its packs
)

// The steps of a replication, in order.
const (
	PackCopied        Point = "pack copied"       // durable in the target; nothing names it there
	CopiesComplete    Point = "copies complete"   // all packs are in the target, the manifest is not
	ManifestCopied    Point = "manifest copied"   // the snapshot exists in the target
	CopiesConfirmed   Point = "copies confirmed"  // no sweep has deleted, or is deleting, what it names
	PackToBeRewritten Point = "pack to be redone" // a damaged copy has been removed from the target
)

// The steps of a removal and of a sweep, in order.
const (
	ManifestRemoved Point = "manifest removed" // the snapshot no longer exists; its packs still do
	RestRemoved     Point = "rest removed"     // the objects beside the manifest are gone, too
	PacksListed     Point = "packs listed"     // a sweep knows which objects exist
	ManifestsRead   Point = "manifests read"   // a sweep knows which objects are named
	NoticeGiven     Point = "notice given"     // a sweep has said what it is about to delete
	PackSwept       Point = "pack swept"       // one of the packs that nothing names is gone
)

// Points lists all steps.
var Points = []Point{
	PackSealed, ObjectWritten, ObjectLinked, PackCreated, PacksComplete, ObjectsClaimed, ManifestReady, ManifestMade,
	SnapshotConfirmed, SnapshotBroken,
	PackCopied, CopiesComplete, ManifestCopied, CopiesConfirmed, PackToBeRewritten,
	ManifestRemoved, RestRemoved, PacksListed, ManifestsRead, NoticeGiven, PackSwept,
}

// Variable is the environment variable that arms a step. "pack created" kills the process when it first reaches that
// step, "pack created#3" when it reaches it for the third time.
const Variable = "DIAPAUSE_FAILPOINT"

// armed is the step that kills, or empty. left counts down the passages; the process dies when it reaches 0.
var (
	armed Point
	left  atomic.Int64
)

// Arm arms the step that Variable names. It must be called before any step is reached, by a process of a test alone: no
// program of the release does.
func Arm() {
	name, count, found := strings.Cut(os.Getenv(Variable), "#")
	n, err := strconv.ParseInt(count, 10, 64)
	if !found || err != nil {
		n = 1
	}
	armed = Point(name)
	left.Store(n)
}

// Hit marks a step in the code. If the step is not armed, Hit returns. If it is, the process dies as if killed by the
// kernel's out-of-memory killer: nothing is flushed and no deferred call runs. Hit costs one comparison of strings,
// nearly always of different lengths.
func (p Point) Hit() {
	if armed != p || armed == "" || left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal takes a moment
}

// Package failpoint names the steps at which a process that changes a store may die, and lets a test
// kill it there. The list reads as the protocol: what is durable at a step, and what is not yet.
//
// Nothing happens unless the environment of the process names a step in Variable as it starts.
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
	PackSealed     Point = "pack sealed"     // in memory; the first effect on the store is to come
	ObjectWritten  Point = "object written"  // dir: the bytes are in a temporary file, which has no name yet
	ObjectLinked   Point = "object linked"   // dir: the object has its name, which may not survive a power cut
	PackCreated    Point = "pack created"    // durable; no manifest names it
	PacksComplete  Point = "packs complete"  // all that the manifest will name is durable
	ObjectsClaimed Point = "objects claimed" // sweeps that give notice from now on spare what the manifest will name
	// No sweep has condemned what it names; the next step makes the snapshot exist.
	ManifestReady     Point = "manifest ready"
	ManifestMade      Point = "manifest made"      // the snapshot exists
	SnapshotConfirmed Point = "snapshot confirmed" // and no sweep has taken, or is taking, what it names
	SnapshotBroken    Point = "snapshot broken"    // a writer gives up: its packs are to be removed
)

// The steps of a replication, in order.
const (
	PackCopied        Point = "pack copied"       // durable in the target; nothing names it there
	CopiesComplete    Point = "copies complete"   // all packs are in the target, the manifest is not
	ManifestCopied    Point = "manifest copied"   // the snapshot exists in the target
	CopiesConfirmed   Point = "copies confirmed"  // and no sweep has taken, or is taking, what it names
	PackToBeRewritten Point = "pack to be redone" // a damaged copy has been removed from the target
)

// The steps of a removal and of a sweep, in order.
const (
	ManifestRemoved Point = "manifest removed" // the snapshot has ceased to exist; its packs are there
	RestRemoved     Point = "rest removed"     // what lay beside the manifest is gone too
	PacksListed     Point = "packs listed"     // a sweep knows what there is
	ManifestsRead   Point = "manifests read"   // a sweep knows what is named
	NoticeGiven     Point = "notice given"     // a sweep has said what it is about to delete
	PackSwept       Point = "pack swept"       // one of the packs that nothing names is gone
)

// Points are all steps.
var Points = []Point{
	PackSealed, ObjectWritten, ObjectLinked, PackCreated, PacksComplete, ObjectsClaimed, ManifestReady, ManifestMade,
	SnapshotConfirmed, SnapshotBroken,
	PackCopied, CopiesComplete, ManifestCopied, CopiesConfirmed, PackToBeRewritten,
	ManifestRemoved, RestRemoved, PacksListed, ManifestsRead, NoticeGiven, PackSwept,
}

// Variable is the environment variable that arms a step: "pack created" kills the process when it
// first comes there, "pack created#3" the third time.
const Variable = "DIAPAUSE_FAILPOINT"

// armed is the step that kills, or empty; left is how often it is still survived.
var (
	armed Point
	left  atomic.Int64
)

func init() { arm(os.Getenv(Variable)) }

func arm(value string) {
	name, count, found := strings.Cut(value, "#")
	n, err := strconv.ParseInt(count, 10, 64)
	if !found || err != nil {
		n = 1
	}
	armed = Point(name)
	left.Store(n)
}

// Hit is called at the step. It returns, unless the step is armed: then the process is dead, as if
// by the kernel's out-of-memory killer, with nothing flushed and nothing deferred. It costs one
// comparison of strings, nearly always of different lengths.
func (p Point) Hit() {
	if armed != p || armed == "" || left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // it takes a moment
}

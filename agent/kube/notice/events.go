// Package notice has what the owner of an object is told: the texts of all events, and of all conditions. What is
// filled in is mostly an error, whose text is where the error is made. The reasons are constants of the API, in its
// packages.
package notice

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// Event is one thing that an event says.
type Event struct {
	Type   string
	Reason string
	Action string // what the agent or the controller was doing
	Text   string // a format
}

// Say returns the text of an event.
func (e Event) Say(args ...any) string { return fmt.Sprintf(e.Text, args...) }

// Types of events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
	none    = "" // no event is made, only a condition says it
)

// common is the reason of events that are not about sleep.
const common = podsnapshotv1.EventReason

// Actions.
const (
	compareClocks = "CompareClocks"
	sweep         = "Sweep"
	checkpoint    = "Checkpoint"
	restore       = "Restore"
	start         = "Start"
	sleep         = "Sleep"
	wake          = "Wake"
)

// Events on the node of the agent or the controller.
var (
	// NothingDeleted: it is not certain what time it is.
	NothingDeleted = Event{warning, common, compareClocks, "Nothing is deleted for its age: %v"}
	// NotSwept: orphans stay in a store.
	NotSwept = Event{warning, common, sweep, "Not swept: %v"}
)

// Events on a pod that is checkpointed, or is to be.
var (
	StillLoading = Event{
		normal, common, checkpoint,
		"Still loading: the pod is checkpointed once it has all its memory, %d of %d MiB so far",
	}
	AwaitsMemory = Event{
		normal, common, checkpoint,
		"Waiting: the pod is checkpointed once other checkpoints on its node have left %d MiB of the memory for checkpoints",
	}
	AwaitsConfirmation = Event{
		normal, common, checkpoint, "Waiting: the controller has not confirmed PodSnapshot %s yet",
	}
	Checkpointed    = Event{normal, common, checkpoint, "Successfully checkpointed the pod to PodSnapshot %s"}
	NotCheckpointed = Event{warning, common, checkpoint, "Failed to checkpoint the pod: %v"}
	// MadeBut: a restore may not notice something. A request is answered so, too.
	MadeBut       = Event{warning, common, checkpoint, "PodSnapshot %s was made, but %s"}
	SnapshotLost  = Event{warning, common, checkpoint, "PodSnapshot %s is lost: %s"}
	OnlyOnNode    = Event{warning, common, checkpoint, "PodSnapshot %s can be restored only on node %s: %s"}
	EndsUnsaved   = Event{warning, common, checkpoint, "The pod ends without having been saved: %v"}
	ContainerEnds = Event{warning, common, checkpoint, "A container ends, and the pod is not saved: %v"}
)

// Events on a pod that starts.
var (
	// Restored is also the message of the pod's condition PodRestored.
	Restored    = Event{normal, common, restore, "Successfully restored the pod from PodSnapshot %s"}
	NotRestored = Event{warning, common, restore, "Failed to restore the pod: %v"}
	NoneFits    = Event{
		normal, common, restore,
		"Not restored: no PodSnapshot of policy %s was made of a pod like this one; %s, the most similar, does not fit: %s",
	}
	// LostSandbox is also the message of the pod's condition PodRestored. It ends with one of the texts below.
	LostSandbox = Event{
		normal, common, start,
		"The pod has lost its sandbox and starts cold: it has run, and a snapshot restores a new pod. %s",
	}
	AnnotationsDropped = Event{
		warning, common, start, "Annotations that a pod may not set are kept from gVisor: %s",
	}
)

// How texts of events on a pod that starts end.
const (
	NamedSnapshot = "That the pod names one counts until it has run"
	NoneOfItself  = "PodSnapshotPolicy %s has the newest snapshot of the pod itself restored, and there is none"
	ToRestoreLost = "To have the newest snapshot of the pod itself restored, set the annotation %s: %s " +
		"on PodSnapshotPolicy %s"
	DroppedAndMore = " and %d more"
)

// Events on a pod about its sleep. Those about a pod that sleeps, or has slept, are also the messages of its condition
// Asleep.
var (
	Slept = Event{
		normal, podsnapshotv1.ReasonSlept, sleep,
		"The pod is saved and uses no memory; the next packet or exec wakes it",
	}
	SleptReady = Event{
		normal, podsnapshotv1.ReasonSlept, sleep,
		"The pod is saved and " + podsnapshotv1.ReadyToWake + ": the next packet or exec wakes it",
	}
	WaitsForMemory = Event{
		warning, podsnapshotv1.ReasonWaitsForMemory, sleep, "The pod is to be woken and waits: %s",
	}
	SleepsOn = Event{
		warning, podsnapshotv1.ReasonWakeFailed, sleep,
		"The pod could not be woken, sleeps on, and its wake is retried: %s",
	}
	Woke        = Event{normal, podsnapshotv1.ReasonWoke, wake, "The pod was woken"}
	WokeBy      = Event{normal, podsnapshotv1.ReasonWoke, wake, "The pod was woken by %s, within %d ms"}
	EndedByWake = Event{
		warning, podsnapshotv1.ReasonWakeFailed, wake, "The pod could not be woken, and its sandbox has ended: %v",
	}
	StartedAgain = Event{
		warning, podsnapshotv1.ReasonWakeFailed, wake,
		"The pod no longer sleeps, and containers of it have started again since it went to sleep",
	}
	Ended = Event{none, podsnapshotv1.ReasonEnded, wake, "The pod has ended"}

	StaysAwake     = Event{warning, podsnapshotv1.ReasonStaysAwake, sleep, "The pod stays awake: %v"}
	IdleStaysAwake = Event{warning, podsnapshotv1.ReasonStaysAwake, sleep, "The pod is idle and stays awake: %v"}
	WouldSleep     = Event{
		normal, sleepv1alpha1.ReasonWouldSleep, sleep,
		"The pod was idle for %s: without dryRun, SleepPolicy %s would have put it to sleep",
	}
	InUse    = Event{normal, sleepv1alpha1.ReasonInUse, sleep, "The pod is in use: %s"}
	MadeRoom = Event{
		normal, podsnapshotv1.ReasonMadeRoom, sleep,
		"The pod was idle and sleeps before its time: another pod of the node needed the memory to wake",
	}
	// InvalidAnnotation says it by the texts below.
	InvalidAnnotation = Event{warning, podsnapshotv1.ReasonInvalidAnnotation, wake, "%s"}
)

// What is wrong with annotations about a pod's sleep.
const (
	AnnotationTooLong = "annotation %s has %d bytes and no effect: at most %d are allowed"
	AnnotationNoTime  = "annotation %s is %.80q and has no effect: it must be a time in RFC 3339, " +
		"such as 2030-12-31T07:30:00Z"
)

package notice

// Messages of the condition Triggered of a PodSnapshotManualTrigger, and of the answer in a pod's annotation. If an
// agent refuses or fails, the message is its error.
const (
	// With reason Checkpointing.
	Checkpointing    = "node %s is checkpointing pod %s/%s"
	CheckpointingPod = "node %s is checkpointing the pod" // in the pod's annotation
	// With reason Complete. With a warning it is the text of MadeBut.
	Made = "PodSnapshot %s was made"
	// With reason Failed: no node's agent answers.
	NodeGone = "node %s, which was checkpointing the pod, is gone or does not answer: create another trigger when the " +
		"pod runs again"
	NotFinished = "the agent of node %s did not finish within %v: look into its log"
	NoPod       = "there is no pod %s: name a pod of namespace %s that runs"
	PodNotBound = "pod %s is not running, it has no node yet: wait until it runs"
	NoAgent     = "no agent runs on node %s, where pod %s is: pods are checkpointed only on nodes where " +
		"Diapause is installed"
)

// Messages of the conditions Checkpoint, StorageReplicated and Ready of a PodSnapshot. With reason Failed it is an
// error, or the first of these texts.
const (
	OnlyCopyLost = "its only copy was on node %s, which no longer exists"
	// Of all three, with reason AwaitingCheckpoint.
	BeingCaptured = "the pod is being captured"
	// Of Checkpoint, with reason Succeeded. A warning may follow.
	Captured = "the pod was captured"
	// Of StorageReplicated, with the reasons NodeLocal, Succeeded and AwaitingCheckpoint.
	StoredOnDisk = "the snapshot is stored on a disk of node %s, so no other node can restore it: to restore it on all, " +
		"store it in a bucket or a shared file system"
	InStore       = "the snapshot is in the store"
	Replicating   = "the snapshot is on node %s, it is being replicated"
	AttemptFailed = "; the last attempt failed: %s" // after Replicating
	// Of StorageReplicated and Ready, with reason DataLost.
	DataLost = "its data is no longer in store %s: if this cluster was brought back from a backup, the snapshot was " +
		"deleted since. Delete the PodSnapshot, or bring the data back"
	// Of Ready, with the reasons AllSnapshotsAvailable, NotConfirmed, AwaitingConfirmation and Deleting.
	CanBeRestored    = "the snapshot can be restored"
	OnlyThere        = "the snapshot can be restored only on node %s: %s"
	NotConfirmed     = "the controller does not confirm it: %.500s"
	AwaitsController = "the pod was captured, and the snapshot waits for the controller to confirm its pod: if that " +
		"takes long, see whether the Deployment diapause-controller runs, in the version of the agents"
	DataStays = "its data is still stored: %v"
)

// Messages of the condition Asleep of a PodSnapshot, with the reasons Slept and Woke. A pod's own are among the events.
const (
	SleepsOnIt  = "the pod sleeps on it"
	WokenFromIt = "the pod has woken from it"
)

// Messages of the condition Ready of a PodSnapshotPolicy, a SleepPolicy or a PodSnapshotStorageConfig. With the reasons
// Invalid and StoreUnavailable, and if there is none here, it is an error.
const (
	// With reason Invalid.
	InvalidSelector  = "spec.selector: %v"
	InvalidRetention = "spec.retentionConfig: %v"
	// Of a policy, with reason Valid.
	PolicyUsable = "the policy can be used"
	AlsoSelected = "; a pod that %s also selects is not checkpointed: make the selectors disjoint" // after PolicyUsable
	// Of a PodSnapshotPolicy, with the reasons StorageConfigNotFound and StorageConfigNotReady.
	NoStorageConfig       = "there is no PodSnapshotStorageConfig %s: create it, or name another"
	StorageConfigNotReady = "PodSnapshotStorageConfig %s is not Ready: %s"
	// Of a SleepPolicy, with reason Overlapping.
	PoliciesOverlap = "a pod that %s also selects stays awake: make the selectors disjoint"
	// Of a storage config, with reason Valid.
	StoreAnswers = "the store answers"
	AgentsStore  = "only the agents see this directory: if it is a separate disk on each node, a snapshot can be " +
		"restored only on the node that made it; if nodes share it, mount it into the controller, too"
)

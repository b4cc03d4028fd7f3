package v1

// Labels.
const (
	// LabelSandboxNameHash groups the pods of one Sandbox of the Agent Sandbox project: eight
	// hexadecimal digits. Its SDK lists PodSnapshots by it.
	LabelSandboxNameHash = "agents.x-k8s.io/sandbox-name-hash"
)

// Annotations of pods.
const (
	// AnnotationSnapshotName names the PodSnapshot, of the pod's namespace, from which the pod is
	// to be restored. Only what it says when the pod starts counts.
	AnnotationSnapshotName = "podsnapshot.gke.io/ps-name"
	// AnnotationRestoreFrom names the snapshot, as namespace/name, that a pod is restored from. In a cluster it is
	// a PodSnapshot of the pod's own namespace.
	AnnotationRestoreFrom = "diapause.dev/restore-from"
	// AnnotationCheckpoint asks for a checkpoint of the pod; its value is any name for the request.
	// Another value is another request.
	AnnotationCheckpoint = "diapause.dev/checkpoint"
	// AnnotationCheckpointStatus is the agent's answer to AnnotationCheckpoint.
	AnnotationCheckpointStatus = "diapause.dev/checkpoint-status"
	// AnnotationOnRestoreFailure says what becomes of a pod that cannot be restored: with the value
	// OnRestoreFailureFail it is refused, without it starts cold. Of a policy it counts for all of
	// the policy's pods.
	AnnotationOnRestoreFailure = "diapause.dev/on-restore-failure"
)

// OnRestoreFailureFail is the value of AnnotationOnRestoreFailure that forbids a cold start.
const OnRestoreFailureFail = "Fail"

// Annotations of PodSnapshots.
const (
	// AnnotationOriginPod is the name of the pod that was checkpointed.
	AnnotationOriginPod = "podsnapshot.gke.io/origin-pod"
	// AnnotationOriginNode is the node on which the pod ran: it holds the first copy.
	AnnotationOriginNode = "diapause.dev/origin-node"
	// AnnotationSnapshotUID is the identity the snapshot has in its manifest.
	AnnotationSnapshotUID = "diapause.dev/snapshot-uid"
	// AnnotationScope is how much of the pod the snapshot keeps, if that is not all: ScopeRootfsOnly.
	AnnotationScope = "diapause.dev/scope"
	// AnnotationSpecHash is the hash of the pod's distilled spec; a pod is restored only from a
	// snapshot of an equal one.
	AnnotationSpecHash = "diapause.dev/spec-hash"
	// AnnotationDistilledSpec is the pod's distilled spec, by which a refusal says what differs; it
	// is absent if it is larger than 64 KiB.
	AnnotationDistilledSpec = "diapause.dev/distilled-spec"
	// AnnotationStorageConfig names the PodSnapshotStorageConfig that says where the snapshot is
	// stored; absent: in the agents' own store.
	AnnotationStorageConfig = "diapause.dev/storage-config"
	// AnnotationServiceAccount is the pod's service account; a pod of another one is not restored
	// from the snapshot.
	AnnotationServiceAccount = "diapause.dev/service-account"
	// AnnotationRunscVersion is the version of runsc under which the pod ran; a restore needs the same.
	AnnotationRunscVersion = "diapause.dev/runsc-version"
	// AnnotationArchitecture is the node's architecture as Go calls it; a restore needs the same.
	AnnotationArchitecture = "diapause.dev/architecture"
	// AnnotationTrigger is the name of the PodSnapshotManualTrigger that asked for the snapshot.
	AnnotationTrigger = "diapause.dev/trigger"
)

// Finalizer holds a PodSnapshot until its stored data has been deleted.
const Finalizer = "podsnapshot.gke.io/podsnapshot-finalizer"

// NoPolicy is the policyName of a PodSnapshot whose pod no policy selects: its checkpoint was asked
// for through an agent's local socket.
const NoPolicy = "none"

// Condition types.
const (
	// ConditionTriggered is the outcome of a PodSnapshotManualTrigger: Unknown while an agent works
	// on it, then True or False for good.
	ConditionTriggered = "Triggered"
	// ConditionCheckpoint of a PodSnapshot: the pod has been captured.
	ConditionCheckpoint = "Checkpoint"
	// ConditionStorageReplicated of a PodSnapshot: it is in the store, so restorable on any node.
	ConditionStorageReplicated = "StorageReplicated"
	// ConditionReady of a PodSnapshot: it can be restored. Of a policy or a storage config: it can
	// be used.
	ConditionReady = "Ready"
	// ConditionPodRestored of a pod: whether it was restored, True before the pod is Ready.
	ConditionPodRestored = "PodRestored"
)

// Reasons of ConditionTriggered.
const (
	// ReasonCheckpointing: an agent has taken the trigger (Unknown).
	ReasonCheckpointing = "Checkpointing"
	// ReasonComplete: status.snapshotCreated names the snapshot (True).
	ReasonComplete = "Complete"
	// ReasonFailed: there is no snapshot, or the pod was to be stopped and was not; the message says why
	// (False). Also of the conditions of a PodSnapshot.
	ReasonFailed = "Failed"
	// ReasonError is as ReasonFailed; clients know both.
	ReasonError = "Error"
)

// Reasons of the conditions of a PodSnapshot, beside ReasonFailed.
const (
	// ReasonAwaitingCheckpoint: the checkpoint is under way (False).
	ReasonAwaitingCheckpoint = "AwaitingCheckpoint"
	// ReasonSucceeded of ConditionCheckpoint and ConditionStorageReplicated (True).
	ReasonSucceeded = "Succeeded"
	// ReasonNodeLocal of ConditionStorageReplicated: the store is a disk of the origin node, which no other node sees
	// (False).
	ReasonNodeLocal = "NodeLocal"
	// ReasonAllSnapshotsAvailable of ConditionReady (True).
	ReasonAllSnapshotsAvailable = "AllSnapshotsAvailable"
	// ReasonDeleting of ConditionReady: the PodSnapshot has been deleted, its stored data is going (False).
	ReasonDeleting = "Deleting"
)

// Reasons of ConditionPodRestored.
const (
	// ReasonRestored: the message names the PodSnapshot (True).
	ReasonRestored = "Restored"
	// ReasonFailedToRestore: a restore was wanted; the message says why it was not possible (False).
	ReasonFailedToRestore = "FailedToRestore"
)

// Reasons of ConditionReady of policies and storage configs.
const (
	// ReasonValid: nothing is wrong (True).
	ReasonValid = "Valid"
	// ReasonInvalid: the message says which field is wrong and what to write instead (False).
	ReasonInvalid = "Invalid"
	// ReasonStorageConfigNotFound: a policy names a storage config that does not exist (False).
	ReasonStorageConfigNotFound = "StorageConfigNotFound"
	// ReasonStorageConfigNotReady: a policy names a storage config that cannot be used (False).
	ReasonStorageConfigNotReady = "StorageConfigNotReady"
	// ReasonStoreUnavailable: a storage config's store does not answer or refuses (False).
	ReasonStoreUnavailable = "StoreUnavailable"
)

// EventReason is the reason of every event, Normal or Warning, on a pod.
const EventReason = "GKEPodSnapshotting"

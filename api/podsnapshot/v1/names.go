package v1

// Labels.
const (
	// LabelSandboxNameHash groups the pods of one Sandbox of the Agent Sandbox project: eight
	// hexadecimal digits. Its SDK lists PodSnapshots by it.
	LabelSandboxNameHash = "agents.x-k8s.io/sandbox-name-hash"
)

// Annotations of pods.
const (
	// AnnotationSnapshotName names the PodSnapshot, in the pod's namespace, to restore the pod from. It is read until the
	// pod has run; later changes have no effect.
	AnnotationSnapshotName = "podsnapshot.gke.io/ps-name"
	// AnnotationRestoreFrom names the snapshot, as namespace/name, to restore the pod from. In a cluster it is a
	// PodSnapshot in the pod's namespace.
	AnnotationRestoreFrom = "diapause.dev/restore-from"
	// AnnotationCheckpoint asks for a checkpoint of the pod. Its value is any name for the request. A new value is a new
	// request.
	AnnotationCheckpoint = "diapause.dev/checkpoint"
	// AnnotationCheckpointStatus is the agent's answer to AnnotationCheckpoint.
	AnnotationCheckpointStatus = "diapause.dev/checkpoint-status"
	// AnnotationSleep asks for the pod to be put to sleep. Its value is any name for the request. A new value is a new
	// request.
	AnnotationSleep = "diapause.dev/sleep"
	// AnnotationWake asks for the pod to be woken, likewise.
	AnnotationWake = "diapause.dev/wake"
	// AnnotationWakeAt is a time in RFC 3339 at which the pod is woken, if it fell asleep before.
	AnnotationWakeAt = "diapause.dev/wake-at"
	// AnnotationSleepStatus is the agent's answer to AnnotationSleep and AnnotationWake.
	AnnotationSleepStatus = "diapause.dev/sleep-status"
	// AnnotationOnRestoreFailure says what happens to a pod that cannot be restored. With the value OnRestoreFailureFail
	// it is refused; with OnRestoreFailureColdStart, and without the annotation, it starts cold. On a policy it applies to
	// all of the policy's pods. Another value is an error, and counts as OnRestoreFailureFail.
	AnnotationOnRestoreFailure = "diapause.dev/on-restore-failure"
)

// Values of AnnotationOnRestoreFailure.
const (
	OnRestoreFailureFail      = "Fail"
	OnRestoreFailureColdStart = "ColdStart"
)

// AnnotationOnTermination of a policy says what happens to the policy's pods when they are deleted. With the value
// OnTerminationCheckpoint they are saved before they are told to end. Another value is an error.
const AnnotationOnTermination = "diapause.dev/on-termination"

// OnTerminationCheckpoint is the value of AnnotationOnTermination that has pods saved.
const OnTerminationCheckpoint = "checkpoint"

// AnnotationOnSandboxLoss of a policy says what happens to the policy's pods that have run and lose their sandbox, by
// an OOM kill, a crash or a reboot. With the value OnSandboxLossRestoreLatest each is restored from the newest snapshot
// of itself. Without the annotation they start again as Kubernetes starts them. Another value is an error.
const AnnotationOnSandboxLoss = "diapause.dev/on-sandbox-loss"

// OnSandboxLossRestoreLatest is the value of AnnotationOnSandboxLoss that has pods restored.
const OnSandboxLossRestoreLatest = "restore-latest"

// AnnotationOnNetAdmin of a policy says what becomes of a checkpoint of a pod with a container that has NET_ADMIN: the
// firewall rules, routes and addresses that it may have set are not in the snapshot. With the value OnNetAdminFail the
// checkpoint fails; with OnNetAdminWarn, and without the annotation, it comes with a warning. Another value is an
// error, and counts as OnNetAdminFail.
const AnnotationOnNetAdmin = "diapause.dev/on-net-admin"

// Values of AnnotationOnNetAdmin.
const (
	OnNetAdminWarn = "warn"
	OnNetAdminFail = "fail"
)

// AnnotationVolumeCheck of a pod says whether the pod is restored although a volume outside its snapshot has changed
// since. With the value VolumeCheckIgnore it is. Without the annotation it is not. Another value counts as none.
const AnnotationVolumeCheck = "diapause.dev/volume-check"

// VolumeCheckIgnore is the value of AnnotationVolumeCheck that has pods restored.
const VolumeCheckIgnore = "ignore"

// Annotations of PodSnapshots.
const (
	// AnnotationOriginPod is the name of the pod that was checkpointed.
	AnnotationOriginPod = "podsnapshot.gke.io/origin-pod"
	// AnnotationOriginPodUID is the UID of that pod.
	AnnotationOriginPodUID = "diapause.dev/origin-pod-uid"
	// AnnotationOriginNode is the node on which the pod ran. It has the first copy.
	AnnotationOriginNode = "diapause.dev/origin-node"
	// AnnotationSnapshotUID is the snapshot's UID in its manifest.
	AnnotationSnapshotUID = "diapause.dev/snapshot-uid"
	// AnnotationScope is ScopeRootfsOnly if the snapshot keeps only files. It is absent if it keeps the whole pod.
	AnnotationScope = "diapause.dev/scope"
	// AnnotationPurpose says what the snapshot is for: "checkpoint" (somebody asked for it), "termination" (its pod was
	// saved because it was deleted) or "sleep" (its pod was saved to sleep).
	AnnotationPurpose = "diapause.dev/purpose"
	// AnnotationInheritable of a snapshot of a sleep says that the successors of its pod may be restored from it, if the
	// pod is deleted while it sleeps or its node is lost. Its value has the labels by which they find it, as key=value,
	// with commas.
	AnnotationInheritable = "diapause.dev/inheritable"
	// AnnotationInherited says that they may be restored from it now. The PodSnapshot then has these labels. The agent
	// of the origin node writes it if the pod is deleted while it sleeps, and the controller if its node is lost.
	AnnotationInherited = "diapause.dev/inherited"
	// AnnotationSpecHash is the hash of the pod's distilled spec. A pod is restored only from a snapshot with an equal
	// distilled spec.
	AnnotationSpecHash = "diapause.dev/spec-hash"
	// AnnotationDistilledSpec is the pod's distilled spec. With it a refusal can say what differs. It is absent if it is
	// larger than 64 KiB.
	AnnotationDistilledSpec = "diapause.dev/distilled-spec"
	// AnnotationStorageConfig names the PodSnapshotStorageConfig that says where the snapshot is stored. If it is
	// absent, the snapshot is in the agents' own store.
	AnnotationStorageConfig = "diapause.dev/storage-config"
	// AnnotationServiceAccount is the pod's service account. A pod with another one is not restored from the snapshot.
	AnnotationServiceAccount = "diapause.dev/service-account"
	// AnnotationRunscVersion is the version of the runsc that ran the pod. A restore needs the same version.
	AnnotationRunscVersion = "diapause.dev/runsc-version"
	// AnnotationArchitecture is the node's architecture, by Go's name. A restore needs the same architecture.
	AnnotationArchitecture = "diapause.dev/architecture"
	// AnnotationTrigger is the name of the PodSnapshotManualTrigger that asked for the snapshot.
	AnnotationTrigger = "diapause.dev/trigger"
	// AnnotationRemove asks the controller to delete the PodSnapshot. The agent of the origin node writes it, which may
	// not delete. Any value counts.
	AnnotationRemove = "diapause.dev/remove"
	// AnnotationWithdrawn says that the origin node has nothing left of a PodSnapshot that is being deleted, and will
	// store nothing of it: the controller may remove its data from the bucket. The agent of that node writes it. Any
	// value counts.
	AnnotationWithdrawn = "diapause.dev/withdrawn"
	// AnnotationConfirmed is written by the controller. It is Confirmed if the pod that was checkpointed was on the origin
	// node, so that other nodes may restore the snapshot; otherwise it says why not. Without it the controller has not
	// decided yet.
	AnnotationConfirmed = "diapause.dev/confirmed"
	// AnnotationAdoptedFrom says that this cluster has taken over the snapshot from another one, as "cluster/namespace"
	// with the UIDs in its manifest. Only who has the verb adopt writes it.
	AnnotationAdoptedFrom = "diapause.dev/adopted-from"
)

// Annotations of the controller's Lease.
const (
	// AnnotationLine is how far the cluster has come, as JSON. The controller counts it on. By it a cluster that was
	// brought back from an older backup is known.
	AnnotationLine = "diapause.dev/line"
	// AnnotationNotSwept says which stores are not swept because the cluster was brought back from an older backup. The
	// controller writes it.
	AnnotationNotSwept = "diapause.dev/not-swept"
	// AnnotationSweepAgain is a time (RFC 3339). Stores are swept again although the cluster has lost what was noted in
	// them before that time. An administrator writes it.
	AnnotationSweepAgain = "diapause.dev/sweep-again"
)

// Inherited is the value of AnnotationInherited.
const Inherited = "true"

// Confirmed is the value of AnnotationConfirmed with which all nodes may restore a snapshot.
const Confirmed = "true"

// Finalizer keeps a PodSnapshot until its stored data has been deleted.
const Finalizer = "podsnapshot.gke.io/podsnapshot-finalizer"

// NoPolicy is the policyName of a PodSnapshot if no policy selects its pod. Such a checkpoint was requested through
// an agent's local socket.
const NoPolicy = "none"

// Condition types.
const (
	// ConditionTriggered is the outcome of a PodSnapshotManualTrigger. It is Unknown while an agent works on it, and
	// then stays True or False.
	ConditionTriggered = "Triggered"
	// ConditionCheckpoint of a PodSnapshot: whether the pod has been captured.
	ConditionCheckpoint = "Checkpoint"
	// ConditionStorageReplicated of a PodSnapshot: whether it is in the store, and so restorable on any node.
	ConditionStorageReplicated = "StorageReplicated"
	// ConditionReady of a PodSnapshot: whether it was captured and the controller has confirmed it, so that it can be
	// restored. Of a policy or a storage config: whether it can be used.
	ConditionReady = "Ready"
	// ConditionPodRestored of a pod: whether it was restored. It becomes True before the pod is Ready.
	ConditionPodRestored = "PodRestored"
)

// ConditionAsleep of a pod: whether it sleeps. It is absent from a pod that has never slept. Its last transition is
// when the pod fell asleep or woke. Of a PodSnapshot of a sleep: whether the pod sleeps on it.
const ConditionAsleep = "diapause.dev/Asleep"

// ReadyToWake is in the message of ConditionAsleep with ReasonSlept if the pod has a sandbox for its wake.
const ReadyToWake = "ready to wake"

// Reasons of ConditionAsleep, and of the events on pods that sleep.
const (
	// ReasonSlept: the sandbox is saved and gone, and the next packet brings it back (True).
	ReasonSlept = "Slept"
	// ReasonWoke: the message says by what, and how long it took (False).
	ReasonWoke = "Woke"
	// ReasonWakeFailed: it could not be woken, and sleeps on (True), or its sandbox has ended (False); the message says
	// why.
	ReasonWakeFailed = "WakeFailed"
	// ReasonEnded: the pod has ended in its sleep, or since (False).
	ReasonEnded = "Ended"
	// ReasonWaitsForMemory: it is to be woken, and the node has no memory for it; the message says what it needs (True).
	ReasonWaitsForMemory = "WaitsForMemory"
	// ReasonMadeRoom: a pod was put to sleep before its time, so that another can wake. Only of events.
	ReasonMadeRoom = "MadeRoom"
	// ReasonStaysAwake: a request to sleep has failed; the message says why. Only of events.
	ReasonStaysAwake = "StaysAwake"
	// ReasonInvalidAnnotation: an annotation of the pod about its sleep has no effect; the message says why. Only of
	// events.
	ReasonInvalidAnnotation = "InvalidAnnotation"
)

// Reasons of ConditionTriggered.
const (
	// ReasonCheckpointing: an agent has taken the trigger (Unknown).
	ReasonCheckpointing = "Checkpointing"
	// ReasonComplete: status.snapshotCreated names the snapshot (True).
	ReasonComplete = "Complete"
	// ReasonFailed: there is no snapshot, or the pod should have been stopped and was not; the message says why (False).
	// Also a reason of the conditions of a PodSnapshot.
	ReasonFailed = "Failed"
	// ReasonError: the same as ReasonFailed; clients know both.
	ReasonError = "Error"
)

// Reasons of the conditions of a PodSnapshot, besides ReasonFailed.
const (
	// ReasonAwaitingCheckpoint: the checkpoint is under way (False).
	ReasonAwaitingCheckpoint = "AwaitingCheckpoint"
	// ReasonAwaitingConfirmation of ConditionReady: the pod was captured, and the controller has not confirmed yet that
	// the pod was on its node. Until then only the origin node restores the snapshot (False).
	ReasonAwaitingConfirmation = "AwaitingConfirmation"
	// ReasonNotConfirmed of ConditionReady: the controller does not confirm it. Only the origin node restores the
	// snapshot (False).
	ReasonNotConfirmed = "NotConfirmed"
	// ReasonSucceeded of ConditionCheckpoint and ConditionStorageReplicated (True).
	ReasonSucceeded = "Succeeded"
	// ReasonNodeLocal of ConditionStorageReplicated: the store is a disk of the origin node, which other nodes cannot
	// see (False).
	ReasonNodeLocal = "NodeLocal"
	// ReasonDataLost of ConditionStorageReplicated and ConditionReady: the store no longer has it, as after etcd was
	// brought back from a backup that is older than its deletion (False).
	ReasonDataLost = "DataLost"
	// ReasonAllSnapshotsAvailable of ConditionReady (True).
	ReasonAllSnapshotsAvailable = "AllSnapshotsAvailable"
	// ReasonDeleting of ConditionReady: the PodSnapshot has been deleted, and its stored data is being deleted (False).
	ReasonDeleting = "Deleting"
)

// Reasons of ConditionPodRestored.
const (
	// ReasonRestored: the message names the PodSnapshot (True).
	ReasonRestored = "Restored"
	// ReasonFailedToRestore: the pod should have been restored; the message says why it was not possible (False).
	ReasonFailedToRestore = "FailedToRestore"
	// ReasonVolumeChanged: the pod should have been restored, and a volume has changed since the snapshot; the message
	// names the file (False).
	ReasonVolumeChanged = "VolumeChanged"
	// ReasonSandboxLost: the pod was restored, has lost its sandbox since, and has started anew (False).
	ReasonSandboxLost = "SandboxLost"
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

// EventReason is the reason of events on pods, Normal and Warning, except of those that have a reason of their own.
const EventReason = "GKEPodSnapshotting"

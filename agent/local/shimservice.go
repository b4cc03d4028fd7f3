package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// shimService implements localv1.ShimServer.
type shimService struct {
	localv1.UnimplementedShimServer
	Config
	decisions *decisions
}

// Annotations that containerd puts into the spec of a sandbox container
// (internal/cri/annotations).
const (
	annotationSandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationSandboxName      = "io.kubernetes.cri.sandbox-name"
	annotationSandboxUID       = "io.kubernetes.cri.sandbox-uid"
)

// AskRestore implements localv1.ShimServer.
func (s *shimService) AskRestore(ctx context.Context,
	req *localv1.AskRestoreRequest,
) (*localv1.AskRestoreResponse, error) {
	d, isNew := s.decisions.about(req.SandboxId)
	if isNew {
		s.Life.Go(func() {
			ctx, cancel := s.Life.Outliving(ctx, decideTime, 0)
			defer cancel()
			d.resp = s.decide(ctx, req)
			close(d.made)
		})
	}
	select {
	case <-d.made:
		s.decisions.answered(req.SandboxId)
		return d.resp, nil
	case <-time.After(answerTime):
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_WAIT}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// decide decides whether a sandbox is restored, and if so prepares its restore. A pod that starts anew is no longer
// remembered as asleep, and is remembered as one that has run.
func (s *shimService) decide(ctx context.Context, req *localv1.AskRestoreRequest) *localv1.AskRestoreResponse {
	pod := podRef(req.Annotations)
	past := sync.OnceValues(func() (lives.Past, error) { return s.Lives.Of(ctx, pod, req.SandboxId) })
	resp := s.decideRestore(ctx, req, past)
	switch resp.Decision {
	case localv1.AskRestoreResponse_START:
		if err := s.Reminders.Forget(pod); err != nil {
			return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_FAIL, Reason: err.Error()}
		}
		if s.Cluster != nil || req.Annotations[podsnapshotv1.AnnotationRestoreFrom] != "" { // else none is ever restored
			s.Lives.Start(pod, req.SandboxId)
		}
	case localv1.AskRestoreResponse_RESTORE, localv1.AskRestoreResponse_RESTORE_ROOTFS:
		if before, err := past(); err != nil {
			s.Logger.Warn("if the pod is not restored, it starts cold", "pod", pod.String(), "error", err)
		} else {
			s.Lives.Try(pod, req.SandboxId, before)
		}
	}
	return resp
}

func (s *shimService) decideRestore(ctx context.Context, req *localv1.AskRestoreRequest,
	past func() (lives.Past, error),
) *localv1.AskRestoreResponse {
	choice, err := s.choose(ctx, podRef(req.Annotations), req, past)
	choice.IgnoreVolumes = req.Annotations[podsnapshotv1.AnnotationVolumeCheck] == podsnapshotv1.VolumeCheckIgnore
	resp := s.prepare(ctx, req, choice, err)
	resp.ExecProbes, resp.ReadinessProbes = choice.Probes, choice.Readiness
	return resp
}

// prepare prepares what was chosen for a sandbox. Err says why nothing could be.
func (s *shimService) prepare(ctx context.Context, req *localv1.AskRestoreRequest, choice restore.Choice,
	err error,
) *localv1.AskRestoreResponse {
	pod := podRef(req.Annotations)
	if err == nil && choice.Snapshot == (snapshot.Key{}) {
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START}
	}
	log := s.Logger.With("pod", pod.String(), "snapshot", choice.Snapshot.String())
	if err == nil {
		var r restore.Prepared
		if r, err = s.Restores.Prepare(ctx, choice, pod, req.SandboxId, req.MemoryLimit); err == nil {
			log.Info("pod is to be restored", "request", r.Request, "scope", r.Scope.String())
			return answer(r, choice)
		}
	}
	if s.Life.Err() != nil { // the stop may have caused the failure; the shim asks the next agent
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_WAIT}
	}
	for _, check := range []func(map[string]string) error{
		podsnapshotv1.CheckOnRestoreFailure, podsnapshotv1.CheckVolumeCheck,
	} {
		if unknown := check(req.Annotations); unknown != nil {
			err = fmt.Errorf("%w; %w", err, unknown)
		}
	}
	s.Metrics.Refused()
	s.Restores.Tell(ctx, pod, choice.Snapshot, err)
	if choice.Fail {
		log.Error("pod cannot be restored and is refused", "error", err)
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_FAIL, Reason: err.Error()}
	}
	log.Error("pod cannot be restored and starts cold", "error", err)
	return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START, Reason: err.Error()}
}

// answer returns the shim's answer for a restore that is prepared.
func answer(r restore.Prepared, choice restore.Choice) *localv1.AskRestoreResponse {
	resp := &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_RESTORE, ImagePath: r.Dir, Request: r.Request,
		EndedContainers: union(choice.Init, r.ExitCodes), ExitCodes: r.ExitCodes,
		Containers: int32(r.Containers), Snapshot: r.Key.String(), Volumes: r.Volumes, Strict: choice.Fail,
		Terminals: terminalsProto(r.Terminals), Payloads: r.Payloads,
	}
	if r.Scope == snapshot.RootfsOnly { // all containers start anew, also those that had ended
		resp.Decision, resp.EndedContainers, resp.ExitCodes = localv1.AskRestoreResponse_RESTORE_ROOTFS, nil, nil
		if choice.Containers > 0 {
			resp.Containers = int32(choice.Containers)
		}
	}
	return resp
}

func podRef(annotations map[string]string) snapshot.PodRef {
	return snapshot.PodRef{
		Namespace: annotations[annotationSandboxNamespace], Name: annotations[annotationSandboxName],
		UID: annotations[annotationSandboxUID],
	}
}

// choose decides whether a pod is restored, and from which snapshot. If the pod slept when the node went down, it is
// restored from its own. Otherwise, if there is a cluster, the cluster decides, and if not, the pod's annotation. A pod
// that has run is not restored as a new one is.
func (s *shimService) choose(ctx context.Context, pod snapshot.PodRef, req *localv1.AskRestoreRequest,
	past func() (lives.Past, error),
) (restore.Choice, error) {
	annotations := req.Annotations
	if c, slept, err := s.Wakes.Remembered(ctx, pod, req.SandboxId); slept || err != nil {
		return s.chooseAgain(ctx, pod, c, annotations, err)
	}
	if s.Cluster == nil {
		return s.chooseNamed(pod, annotations, past)
	}
	c, err := s.Cluster.Choose(ctx, pod, past)
	c.Fail = c.Fail || podsnapshotv1.MustRestore(annotations)
	return c, err
}

// chooseNamed is choose without a cluster. The snapshot that a pod names is for its first run: one that has run is
// restored only from the snapshot after which Diapause has ended it.
func (s *shimService) chooseNamed(pod snapshot.PodRef, annotations map[string]string,
	past func() (lives.Past, error),
) (restore.Choice, error) {
	from := annotations[podsnapshotv1.AnnotationRestoreFrom]
	if from == "" {
		return restore.Choice{}, nil
	}
	p, err := past()
	choice := restore.Choice{Fail: err != nil || podsnapshotv1.MustRestore(annotations)}
	switch {
	case err != nil:
	case !p.Ran:
		choice.Snapshot = parseKey(from, pod.Namespace)
	default:
		choice.Snapshot, choice.UID = p.Stopped.Key, p.Stopped.UID
	}
	return choice, err
}

// chooseAgain completes the choice for a pod that slept when the node went down. If err is set, or the cluster cannot
// be asked, the pod is refused, and the kubelet tries again.
func (s *shimService) chooseAgain(ctx context.Context, pod snapshot.PodRef, c restore.Choice,
	annotations map[string]string, err error,
) (restore.Choice, error) {
	if err == nil && s.Cluster != nil {
		c, err = s.Cluster.Again(ctx, pod, c)
	}
	c.Fail = c.Fail || err != nil || podsnapshotv1.MustRestore(annotations)
	return c, err
}

// ReportRestore implements localv1.ShimServer.
func (s *shimService) ReportRestore(ctx context.Context,
	req *localv1.ReportRestoreRequest,
) (*localv1.ReportRestoreResponse, error) {
	if req.GivenUp {
		s.giveUp(req.SandboxId, errors.New(req.Error))
		return &localv1.ReportRestoreResponse{}, nil
	}
	pod := podRef(req.Annotations)
	if req.Woken != nil && req.Error == "" {
		s.Wakes.Woken(req.Request)
		s.Sleeps.Woke(pod, req.SandboxId, req.Woken)
		return &localv1.ReportRestoreResponse{}, nil
	}
	key := parseKey(req.Snapshot, pod.Namespace)
	if req.Error != "" {
		s.Logger.Error("restore failed in the shim", "request", req.Request, "sandbox", req.SandboxId, "error", req.Error)
		failure := s.Restores.Explain(req.Request, errors.New(req.Error))
		if req.Woken != nil { // it was to wake the pod, which has not run since
			if err := s.Wakes.Unwoken(req.Request, req.SandboxId, pod); err != nil {
				s.Logger.Error("a pod that could not be woken starts cold", "request", req.Request, "error", err)
			}
			s.Sleeps.WakeFailed(pod, req.SandboxId, failure)
		}
		s.Restores.Reported(req.Request, req.SandboxId, failure)
		s.Restores.Tell(ctx, pod, key, failure)
	}
	if req.Loaded {
		if err := s.Restores.Loaded(req.Request); err != nil {
			return nil, toStatus(err)
		}
	}
	if req.Complete {
		s.Lives.Complete(pod, req.SandboxId)
	}
	if req.Complete && s.Cluster != nil {
		if err := s.Cluster.Restored(ctx, pod, key); err != nil {
			return nil, status.Error(localv1.CodeAgain, err.Error())
		}
	}
	return &localv1.ReportRestoreResponse{}, nil
}

// CheckContainer implements localv1.ShimServer.
func (s *shimService) CheckContainer(ctx context.Context, req *localv1.CheckContainerRequest,
) (*localv1.CheckContainerResponse, error) {
	if err := s.Restores.CheckContainer(ctx, req.Request, req.ContainerId); err != nil {
		return nil, toStatus(err)
	}
	return &localv1.CheckContainerResponse{}, nil
}

// PrepareWorkload implements localv1.ShimServer.
func (s *shimService) PrepareWorkload(_ context.Context, req *localv1.PrepareWorkloadRequest,
) (*localv1.PrepareWorkloadResponse, error) {
	scope := snapshot.WholePod
	if req.RootfsOnly {
		scope = snapshot.RootfsOnly
	}
	dir, err := s.Checkpoints.PrepareWorkload(req.SandboxId, scope)
	if err != nil {
		return nil, toStatus(err)
	}
	return &localv1.PrepareWorkloadResponse{ImagePath: dir}, nil
}

// ReadVolume implements localv1.ShimServer. If the store cannot be reached, it waits for the store as long as the
// caller waits.
func (s *shimService) ReadVolume(req *localv1.ReadVolumeRequest,
	stream grpc.ServerStreamingServer[localv1.ReadVolumeResponse],
) error {
	return toStatus(s.Restores.Volume(stream.Context(), req.Request, req.Volume, req.Offset,
		func(size int64, data []byte) error {
			return stream.Send(&localv1.ReadVolumeResponse{Size: size, Data: data})
		}))
}

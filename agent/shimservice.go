package agent

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// shimService implements localv1.ShimServer.
type shimService struct {
	localv1.UnimplementedShimServer
	*Agent
}

// Annotations that containerd puts into the spec of a sandbox container
// (internal/cri/annotations).
const (
	annotationSandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationSandboxName      = "io.kubernetes.cri.sandbox-name"
	annotationSandboxUID       = "io.kubernetes.cri.sandbox-uid"
)

// decide decides what becomes of a sandbox, and prepares its restore if it is restored.
func (s *shimService) decide(ctx context.Context, req *localv1.AskRestoreRequest) *localv1.AskRestoreResponse {
	pod := podRef(req.Annotations)
	choice, err := s.choose(ctx, pod, req.Annotations)
	if err == nil && choice.Snapshot == (snapshot.Key{}) {
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START}
	}
	log := s.log.With("pod", pod.String(), "snapshot", choice.Snapshot.String())
	if err == nil {
		var r *restore
		var dir string
		if r, dir, err = s.restores.prepare(ctx, choice, pod, req.SandboxId, req.MemoryLimit); err == nil {
			log.Info("pod is to be restored", "request", r.Request, "scope", r.Scope.String())
			return r.answer(dir, choice)
		}
	}
	if s.life.Err() != nil { // perhaps the failure is only that; the shim asks the next agent
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_WAIT}
	}
	s.metrics.refused()
	s.tell(ctx, pod, choice.Snapshot, err)
	if choice.Fail {
		log.Error("pod cannot be restored and is refused", "error", err)
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_FAIL, Reason: err.Error()}
	}
	log.Error("pod cannot be restored and starts anew", "error", err)
	return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START, Reason: err.Error()}
}

// answer is what the shim is told of a restore that is ready.
func (r *restore) answer(dir string, choice Choice) *localv1.AskRestoreResponse {
	resp := &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_RESTORE, ImagePath: dir, Request: r.Request,
		EndedContainers: union(choice.Init, r.exitCodes), ExitCodes: r.exitCodes,
		Containers: int32(r.containers), Snapshot: r.Key.String(), Volumes: r.volumes, Strict: choice.Fail,
		Terminals: r.terminals,
	}
	if r.Scope == snapshot.RootfsOnly { // all containers start anew, those that had ended too
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

// choose decides what becomes of a pod: where there is a cluster, it decides, or else the pod's own
// annotation.
func (s *shimService) choose(ctx context.Context, pod snapshot.PodRef, annotations map[string]string) (Choice, error) {
	if from := annotations[AnnotationRestoreFrom]; from != "" && s.cluster == nil {
		return Choice{
			Snapshot: parseKey(from, pod.Namespace),
			Fail:     annotations[AnnotationOnRestoreFailure] == OnFailureFail,
		}, nil
	}
	if s.cluster == nil {
		return Choice{}, nil
	}
	c, err := s.cluster.Choose(ctx, pod)
	c.Fail = c.Fail || annotations[AnnotationOnRestoreFailure] == OnFailureFail
	return c, err
}

// tellTime bounds what the cluster is told beside the path of a pod's start.
const tellTime = 10 * time.Second

// tell tells the cluster how a restore failed, without keeping the caller waiting.
func (a *Agent) tell(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error) {
	if a.cluster == nil {
		return
	}
	a.life.Go(func() {
		ctx, cancel := a.life.Outliving(ctx, tellTime, lastWords)
		defer cancel()
		a.cluster.NotRestored(ctx, pod, key, err)
	})
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
	key := parseKey(req.Snapshot, pod.Namespace)
	if req.Error != "" {
		s.log.Error("restore failed in the shim", "request", req.Request, "sandbox", req.SandboxId, "error", req.Error)
		failure := errors.New(req.Error)
		s.restores.reported(req.Request, failure)
		s.tell(ctx, pod, key, failure)
	}
	if req.Loaded {
		if err := s.restores.loaded(req.Request); err != nil {
			return nil, toStatus(err)
		}
	}
	if req.Complete && s.cluster != nil {
		if err := s.cluster.Restored(ctx, pod, key); err != nil {
			return nil, status.Error(codes.Aborted, err.Error()) // the shim tells it again
		}
	}
	return &localv1.ReportRestoreResponse{}, nil
}

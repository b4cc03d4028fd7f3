package agent

import (
	"context"
	"errors"

	localv1 "diapause.dev/api/local/v1"
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
)

// AskRestore implements localv1.ShimServer.
func (s *shimService) AskRestore(ctx context.Context, req *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
	from := req.Annotations[AnnotationRestoreFrom]
	if from == "" {
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START}, nil
	}
	namespace, name := req.Annotations[annotationSandboxNamespace], req.Annotations[annotationSandboxName]
	log := s.log.With("pod", namespace+"/"+name, "snapshot", from)
	r, dir, err := s.restores.prepare(ctx, parseKey(from, namespace), namespace, name, req.SandboxId)
	if err == nil {
		log.Info("pod is to be restored", "request", r.Request)
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_RESTORE, ImagePath: dir, Request: r.Request}, nil
	}
	s.metrics.refused()
	if req.Annotations[AnnotationOnRestoreFailure] == OnFailureFail {
		log.Error("pod cannot be restored and is refused", "error", err)
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_FAIL, Reason: err.Error()}, nil
	}
	log.Error("pod cannot be restored and starts anew", "error", err)
	return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START, Reason: err.Error()}, nil
}

// ReportRestore implements localv1.ShimServer.
func (s *shimService) ReportRestore(_ context.Context, req *localv1.ReportRestoreRequest) (*localv1.ReportRestoreResponse, error) {
	if req.Error != "" {
		s.log.Error("restore failed in the shim", "request", req.Request, "sandbox", req.SandboxId, "error", req.Error)
		s.restores.reported(req.Request, errors.New(req.Error))
	}
	return &localv1.ReportRestoreResponse{}, nil
}

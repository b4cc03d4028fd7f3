package local

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	localv1 "diapause.dev/api/local/v1"
)

// AskEnd implements localv1.ShimServer. It answers within answerTime, so that the shim can tell an agent that works
// from one that hangs.
func (s *shimService) AskEnd(ctx context.Context, req *localv1.AskEndRequest) (*localv1.AskEndResponse, error) {
	pod := podRef(req.Annotations)
	if s.Cluster == nil || pod.UID == "" {
		return &localv1.AskEndResponse{Decision: localv1.AskEndResponse_SIGNAL}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	switch wait, saved := s.Cluster.MayEnd(ctx, pod); {
	case saved:
		return &localv1.AskEndResponse{Decision: localv1.AskEndResponse_SAVED}, nil
	case wait > 0:
		return &localv1.AskEndResponse{Decision: localv1.AskEndResponse_WAIT, Limit: durationpb.New(wait)}, nil
	}
	return &localv1.AskEndResponse{Decision: localv1.AskEndResponse_SIGNAL}, nil
}

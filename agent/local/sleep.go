package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/restore"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// Sleep implements localv1.AgentServer.
func (s *service) Sleep(req *localv1.SleepRequest, stream grpc.ServerStreamingServer[localv1.SleepEvent]) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	f, err := s.Sleeps.Sleep(ctx, s.Life.Context(), checkpoint.Options{
		Target: req.Target, Name: req.Name,
		Progress: func(stage string, done, total int64) {
			out.progress(stage, &localv1.SleepEvent{Event: &localv1.SleepEvent_Progress{
				Progress: &localv1.Progress{Stage: stage, Done: done, Total: total},
			}})
		},
		Accepted: func(id string) {
			out.send(&localv1.SleepEvent{Event: &localv1.SleepEvent_Accepted{Accepted: id}})
		},
	})
	if err != nil {
		return toStatus(err)
	}
	out.send(&localv1.SleepEvent{Event: &localv1.SleepEvent_Asleep{Asleep: foundProto(f)}})
	return nil
}

// Wake implements localv1.AgentServer.
func (s *service) Wake(ctx context.Context, req *localv1.WakeRequest) (*localv1.WakeResponse, error) {
	w, err := s.Sleeps.Waker.Wake(ctx, req.Target, "request")
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &localv1.WakeResponse{Pod: w.Pod.String(), Took: durationpb.New(w.Took)}
	if !w.Since.IsZero() {
		resp.SleptSince = timestamppb.New(w.Since)
	}
	return resp, nil
}

// AskWake implements localv1.ShimServer.
func (s *shimService) AskWake(ctx context.Context, req *localv1.AskWakeRequest) (*localv1.AskWakeResponse, error) {
	if why := s.unreadable(ctx, req); why != "" {
		return &localv1.AskWakeResponse{Decision: localv1.AskWakeResponse_WAIT, Reason: why}, nil
	}
	admitted, why := s.Admission.Ask(ctx, admission.Wake{
		Request: req.Request, Sandbox: req.SandboxId, Room: req.Room, Waited: req.Waited.AsDuration(),
	})
	if !admitted {
		return &localv1.AskWakeResponse{Decision: localv1.AskWakeResponse_WAIT, Reason: "memory: " + why}, nil
	}
	s.Wakes.Admit(req.Request) // also if nothing had to wait for memory
	payloads, err := s.Wakes.Payloads(ctx, req.Request)
	if err != nil { // the wake itself meets it, too
		s.Logger.Warn("a pod is woken without its volumes being looked at", "request", req.Request, "error", err)
	}
	return &localv1.AskWakeResponse{
		Decision: localv1.AskWakeResponse_WAKE, Payloads: payloads, Unreadable: err != nil,
	}, nil
}

// readAgain is the pause before a shim is told that the snapshot of its pod cannot be read. Then it asks again.
const readAgain = time.Second

// unreadable returns why the snapshot of a pod that is to be woken cannot be read, after a pause. The pod sleeps on
// until it can be. Empty: it can be, or never will be.
func (s *shimService) unreadable(ctx context.Context, req *localv1.AskWakeRequest) string {
	pod, err := s.Wakes.Unreadable(ctx, req.Request)
	if err == nil {
		return ""
	}
	s.hindered(pod, req.SandboxId, fmt.Errorf("its snapshot cannot be read now: %w", err))
	select {
	case <-time.After(readAgain):
	case <-ctx.Done():
	}
	return "its snapshot, which cannot be read now: " + err.Error()
}

// hindered says once of each reason why a pod that is to be woken sleeps on.
func (s *shimService) hindered(pod snapshot.PodRef, sandbox string, why error) {
	if told, ok := s.Sleeps.Unwoken(pod.UID); !ok || told != why.Error() {
		s.Sleeps.SleepsOn(pod, sandbox, why)
	}
}

// RetryWake implements localv1.ShimServer.
func (s *shimService) RetryWake(ctx context.Context, req *localv1.RetryWakeRequest,
) (*localv1.RetryWakeResponse, error) {
	pod, failure := podRef(req.Annotations), errors.New(req.Error)
	dir, why, err := s.Wakes.RetryWake(ctx, req.Request, req.SandboxId, pod, req.Since.AsTime(), failure)
	switch {
	case restore.Hopeless(err):
		return nil, status.Error(localv1.CodeNever, err.Error())
	case err != nil: // no other code: the pod would end
		s.hindered(pod, req.SandboxId, err)
		return nil, status.Error(localv1.CodeAgain, err.Error())
	}
	s.Sleeps.SleepsOn(pod, req.SandboxId, why)
	return &localv1.RetryWakeResponse{ImagePath: dir, Reason: why.Error()}, nil
}

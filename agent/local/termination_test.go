package local

import (
	"context"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
)

// TestAskEnd: a shim hears soon whether its container may end, however long the save takes.
func TestAskEnd(t *testing.T) {
	saving := func(ctx context.Context) (time.Duration, bool) {
		<-ctx.Done()
		return time.Minute, false
	}
	answer := func(wait time.Duration, saved bool) Cluster {
		return &fakeCluster{saving: func(context.Context) (time.Duration, bool) { return wait, saved }}
	}
	for name, c := range map[string]struct {
		cluster Cluster
		pod     map[string]string
		want    localv1.AskEndResponse_Decision
	}{
		"no cluster":  {nil, annotated(), localv1.AskEndResponse_SIGNAL},
		"no pod":      {answer(0, true), nil, localv1.AskEndResponse_SIGNAL},
		"not to save": {answer(0, false), annotated(), localv1.AskEndResponse_SIGNAL},
		"saving":      {&fakeCluster{saving: saving}, annotated(), localv1.AskEndResponse_WAIT},
		"saved":       {answer(0, true), annotated(), localv1.AskEndResponse_SAVED},
	} {
		s := &shimService{Config: Config{Cluster: c.cluster}}
		resp, err := s.AskEnd(t.Context(), &localv1.AskEndRequest{SandboxId: "sandbox", Annotations: c.pod})
		if err != nil || resp.Decision != c.want {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if waits := resp.Limit.AsDuration() == time.Minute; waits != (c.want == localv1.AskEndResponse_WAIT) {
			t.Errorf("%s: limit %v", name, resp.Limit)
		}
	}
}

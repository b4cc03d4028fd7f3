package local

import (
	"context"
	"errors"
	"testing"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/restore"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// slow is a cluster that does not decide before its context ends.
type slow struct {
	Cluster
	asked chan struct{}
	cause error // why it gave up
	told  bool
}

func (s *slow) Choose(ctx context.Context, _ snapshot.PodRef, _ func() (lives.Past, error)) (restore.Choice, error) {
	close(s.asked)
	<-ctx.Done()
	s.cause = context.Cause(ctx)
	return restore.Choice{Fail: true}, ctx.Err()
}

func (s *slow) NotRestored(context.Context, snapshot.PodRef, snapshot.Key, error) { s.told = true }

// TestDecisionEndsWithTheAgent: an agent that is told to stop does not finish its decisions. It neither starts pods
// anew nor refuses them because of that. The next agent decides.
func TestDecisionEndsWithTheAgent(t *testing.T) {
	cluster := &slow{asked: make(chan struct{})}
	life := lifetime.New(t.Context())
	marks := asleep.NewMarks(requests.Dir(t.TempDir()), journaltest.Quiet)
	reminders := asleep.NewReminders(asleep.Config{Dir: t.TempDir(), Marks: marks, Logger: journaltest.Quiet})
	restores := restore.New(restore.Config{
		Marks: marks, Reminders: reminders, Cluster: cluster, Life: life, Logger: journaltest.Quiet,
	})
	s := &shimService{Config: Config{
		Cluster: cluster, Restores: restores, Wakes: restore.NewWakes(restores), Reminders: reminders, Life: life,
		Logger: journaltest.Quiet,
	}, decisions: newDecisions()}
	ask := func() localv1.AskRestoreResponse_Decision {
		t.Helper()
		resp, err := s.AskRestore(t.Context(), &localv1.AskRestoreRequest{SandboxId: "sandbox"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Decision
	}
	if d := ask(); d != localv1.AskRestoreResponse_WAIT {
		t.Fatalf("decided %v", d)
	}
	<-cluster.asked
	life.End(errkind.ErrStopping)
	life.Wait()
	if d := ask(); d != localv1.AskRestoreResponse_WAIT || !errors.Is(cluster.cause, errkind.ErrStopping) || cluster.told {
		t.Errorf("decided %v; it ended because of %v; the cluster was told: %v", d, cluster.cause, cluster.told)
	}
}

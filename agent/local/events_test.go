package local

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	localv1 "diapause.dev/api/local/v1"
)

// talkative is a local service that calls tell in each verification. tell sends its events.
type talkative struct {
	localv1.UnimplementedAgentServer
	tell func(*events[localv1.VerifyEvent])
}

func (s *talkative) Verify(_ *localv1.VerifyRequest, stream grpc.ServerStreamingServer[localv1.VerifyEvent]) error {
	out := newEvents(stream)
	defer out.flush()
	s.tell(out)
	return nil
}

// listen begins a verification over a real connection.
func listen(ctx context.Context, t *testing.T,
	tell func(*events[localv1.VerifyEvent]),
) grpc.ServerStreamingClient[localv1.VerifyEvent] {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	localv1.RegisterAgentServer(server, &talkative{tell: tell})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	stream, err := localv1.NewAgentClient(conn).Verify(ctx, &localv1.VerifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func stageEvent(stage string, done int64) *localv1.VerifyEvent {
	return &localv1.VerifyEvent{Event: &localv1.VerifyEvent_Progress{Progress: &localv1.Progress{
		Stage: stage,
		Done:  done,
	}}}
}

// TestEventsDoNotWait: a client that does not read, for example because Ctrl-Z has stopped it, does not block the
// sender of events. Later it gets the newest ones.
func TestEventsDoNotWait(t *testing.T) {
	told := make(chan struct{})
	const rounds = 100
	long := strings.Repeat("x", 32<<10) // so that a few fill the buffers of the connection
	stream := listen(t.Context(), t, func(out *events[localv1.VerifyEvent]) {
		for i := range int64(rounds) {
			for stage := range 20 {
				out.progress(fmt.Sprint(stage, long), stageEvent(fmt.Sprint(stage, long), i+1))
			}
		}
		out.send(verifyResult(&localv1.VerifyResult{Ok: true}))
		close(told)
	})
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("the teller waits for its listener")
	}
	newest, messages := map[string]int64{}, 0
	for {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetResult() != nil {
			break
		}
		if p := e.GetProgress(); p.Done < newest[p.Stage] {
			t.Errorf("%d after %d", p.Done, newest[p.Stage])
		} else {
			newest[p.Stage] = p.Done
		}
		messages++
	}
	for stage, done := range newest {
		if done != rounds {
			t.Errorf("stage %.3s: the last that was told is %d", stage, done)
		}
	}
	if len(newest) != 20 || messages >= 20*rounds {
		t.Errorf("%d stages in %d messages", len(newest), messages)
	}
}

// TestEventsTellTheEnd: however fast a stage goes, its first and its last progress are sent, and only a few in between.
func TestEventsTellTheEnd(t *testing.T) {
	stream := listen(t.Context(), t, func(out *events[localv1.VerifyEvent]) {
		for i := range int64(10_000) {
			out.progress("spool", stageEvent("spool", i))
		}
		out.progress("replicate", stageEvent("replicate", 1))
	})
	var spool []int64
	for {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetProgress().Stage == "replicate" {
			break
		}
		spool = append(spool, e.GetProgress().Done)
	}
	if len(spool) == 0 || len(spool) > 1000 || spool[len(spool)-1] != 9999 {
		t.Errorf("told %v", spool)
	}
}

// TestEventsOfAClientThatIsGone: a client that is gone does not block the sender of events.
func TestEventsOfAClientThatIsGone(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	full, flushed := make(chan struct{}), make(chan struct{})
	listen(ctx, t, func(out *events[localv1.VerifyEvent]) {
		for range 100 {
			out.send(stageEvent(strings.Repeat("x", 32<<10), 0))
		}
		close(full)
		out.flush()
		out.send(stageEvent("late", 0))
		close(flushed)
	})
	<-full
	leave()
	<-flushed
}

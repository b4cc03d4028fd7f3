package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// kind is a kind of light work.
type kind struct {
	name      string
	container bed.Container
	work      func(*bed.Bed) work
}

const (
	requestEvery = 2 * time.Second
	pingEvery    = 10 * time.Second
	keyEvery     = 5 * time.Second
)

// resting is a server that does nothing between requests.
var resting = bed.Container{
	Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "rest", "--mib=64"},
}

// cronEvery is how often the loop works, in seconds.
const cronEvery = "5"

var kinds = []kind{
	{"request-kept", resting, func(*bed.Bed) work { return &requests{kept: true} }},
	{"request-new", resting, func(*bed.Bed) work { return &requests{} }},
	{"cron", bed.Container{Name: "app", Command: []string{
		"/bin/sh", "-c", "n=0; while :; do n=$((n+1)); head -c 4000000 /dev/zero | sha256sum >/dev/null; echo turn $n; " +
			"sleep " + cronEvery + "; done",
	}}, func(*bed.Bed) work { return cron{} }},
	{"websocket", resting, func(*bed.Bed) work { return &socket{} }},
	{"exec", bed.Container{Name: "app", Command: []string{"/bin/sleep", "infinity"}}, func(b *bed.Bed) work {
		return &session{bed: b}
	}},
}

// every calls f at that pace until ctx ends.
func every(ctx context.Context, pace time.Duration, f func()) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// requests is a client that sends a request now and then.
type requests struct {
	kept    bool // on one connection, otherwise each on its own
	subject subject
	line    keptLine
	out     result
}

func (q *requests) do(ctx context.Context, pod *bed.Pod) error {
	q.subject.address = net.JoinHostPort(pod.IP, "8080")
	err := bed.Until(ctx, func() error { _, err := q.subject.ask(ctx); return err })
	if err != nil {
		return err
	}
	every(ctx, requestEvery, func() {
		took, err := q.ask(context.WithoutCancel(ctx))
		if err != nil {
			say("false: a request to %s: %s: %v", pod.Name, kindOf(err), err)
			q.out.lost++
			return
		}
		q.out.done++
		q.out.times = append(q.out.times, took)
	})
	return nil
}

func (q *requests) ask(ctx context.Context) (time.Duration, error) {
	if q.kept {
		return q.line.ask(ctx, &q.subject)
	}
	return q.subject.ask(ctx)
}

func (q *requests) result(ctx context.Context, _ *bed.Bed, _ *bed.Pod) (result, error) {
	q.line.close()
	return q.out, errors.Join(q.subject.ledger.whole(), verify(ctx, q.subject.address))
}

// cron is a loop in the pod that works for a moment now and then. Nobody asks it anything.
type cron struct{}

func (cron) do(ctx context.Context, _ *bed.Pod) error {
	<-ctx.Done()
	return nil
}

// result counts the turns of the loop, none of which may be missing in the log.
func (cron) result(ctx context.Context, b *bed.Bed, pod *bed.Pod) (r result, err error) {
	log, err := b.Logs(ctx, pod.Container("app"))
	if err != nil {
		return r, err
	}
	for l := range strings.Lines(log) {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(l), "turn "))
		if err != nil {
			return r, fmt.Errorf("the log has the line %.100q", l)
		}
		r.lost += n - r.done - 1
		r.done = n
	}
	return r, nil
}

// socket is a WebSocket that stays open, with a ping now and then.
type socket struct {
	out result
}

func (s *socket) do(ctx context.Context, pod *bed.Pod) error {
	var conn *websocket.Conn
	dialer := websocket.Dialer{NetDialContext: (&net.Dialer{KeepAlive: -1}).DialContext}
	err := bed.Until(ctx, func() (err error) {
		conn, _, err = dialer.DialContext(ctx, "ws://"+net.JoinHostPort(pod.IP, "8080")+"/socket", nil)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	pongs := make(chan string, maxPongs)
	conn.SetPongHandler(func(text string) error { pongs <- text; return nil })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = conn.ReadMessage() // passes pongs on until the connection ends
	}()
	n := 0
	every(ctx, pingEvery, func() {
		n++
		if err := s.ping(conn, strconv.Itoa(n), pongs, ended); err != nil {
			say("false: %s: ping %d: %v", pod.Name, n, err)
			s.out.lost++
		}
	})
	conn.Close()
	<-ended
	return nil
}

// maxPongs is how many pongs may wait to be looked at: those that came too late.
const maxPongs = 1000

// ping sends a ping and waits for its pong.
func (s *socket) ping(conn *websocket.Conn, text string, pongs <-chan string, ended <-chan struct{}) error {
	began := time.Now()
	if err := conn.WriteControl(websocket.PingMessage, []byte(text), began.Add(answerLimit)); err != nil {
		return err
	}
	late := time.After(answerLimit)
	for got := ""; got != text; {
		select {
		case got = <-pongs:
		case <-ended:
			return net.ErrClosed
		case <-late:
			return context.DeadlineExceeded
		}
	}
	s.out.done++
	s.out.times = append(s.out.times, time.Since(began))
	return nil
}

func (s *socket) result(context.Context, *bed.Bed, *bed.Pod) (result, error) { return s.out, nil }

// session is a shell that somebody has opened by exec, and in which they type a line now and then.
type session struct {
	bed *bed.Bed
	out result
}

func (s *session) do(ctx context.Context, pod *bed.Pod) error {
	open := context.WithoutCancel(ctx)
	shell, err := s.bed.ExecTerminal(open, pod.Container("app"), "/bin/sh")
	if err != nil {
		return err
	}
	defer shell.Detach()
	n := 0
	every(ctx, keyEvery, func() {
		n++
		if err := s.key(open, shell, n); err != nil {
			say("false: %s: line %d: %v", pod.Name, n, err)
			s.out.lost++
		}
	})
	return nil
}

// key types a line whose answer is not what the terminal shows of the line itself.
func (s *session) key(ctx context.Context, shell *bed.Attachment, n int) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	began := time.Now()
	if err := shell.Type(fmt.Sprintf("echo line$((%d+0))\n", n)); err != nil {
		return err
	}
	if err := shell.Shows(ctx, fmt.Sprintf("line%d\r", n), 1); err != nil {
		return err
	}
	s.out.done++
	s.out.times = append(s.out.times, time.Since(began))
	return nil
}

func (s *session) result(context.Context, *bed.Bed, *bed.Pod) (result, error) { return s.out, nil }

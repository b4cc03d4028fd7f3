package sentry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
)

// unansweredCall asks the sentry on which connections somebody waits for an answer: see the patch "net: say on which
// connections an answer is owed".
const unansweredCall = `{"method":"Network.Unanswered","arg":{"bytes":%d,"for":%d}}`

// leastRequest is how many bytes a request has at least. What goes the other way while nobody waits is smaller: the
// pong of a WebSocket has 6 to 22 bytes, two window updates of HTTP/2 have 26, in TLS 48.
const leastRequest = 64

// unansweredLimit bounds the time that the sentry takes.
const unansweredLimit = 5 * time.Second

// unanswered is a connection on which somebody waits for an answer.
type unanswered struct {
	From  netip.AddrPort `json:"from"`
	Port  uint16         `json:"port"` // of the pod
	Bytes int            `json:"bytes"`
	For   time.Duration  `json:"for"` // in nanoseconds
}

// Answered returns an error of kind sleep.ErrTraffic if somebody outside has sent a request over TCP, no longer ago
// than a time, and the pod has answered nothing. What is ignored does not count. gVisor's own build does not tell: with
// it, Answered returns nil.
func (s Sentry) Answered(ctx context.Context, within time.Duration, ignored []traffic.Ignored) error {
	ctx, cancel := context.WithTimeout(ctx, unansweredLimit)
	defer cancel()
	conn, err := s.control(ctx)
	if err != nil {
		return fmt.Errorf("%w: look at its connections: %w", sleep.ErrUnfit, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var result struct {
		Connections []unanswered `json:"connections"`
	}
	err = ask(conn, fmt.Sprintf(unansweredCall, leastRequest, within), &result)
	switch {
	case errors.Is(err, errUnknownMethod):
		return nil
	case err != nil:
		return fmt.Errorf("%w: look at its connections: %w", sleep.ErrUnfit, errors.Join(err, context.Cause(ctx)))
	}
	return owed(result.Connections, ignored)
}

// owed returns an error of kind sleep.ErrTraffic if one of these connections counts.
func owed(all []unanswered, ignored []traffic.Ignored) error {
	for _, u := range all {
		f := traffic.Flow{Protocol: "TCP", From: u.From.Addr().Unmap(), Port: u.Port}
		if !slices.ContainsFunc(ignored, func(x traffic.Ignored) bool { return x.Covers(f) }) {
			return fmt.Errorf("%w: %s waits for an answer of port %d for %s", sleep.ErrTraffic, u.From, u.Port,
				u.For.Round(time.Millisecond))
		}
	}
	return nil
}

package sidecar

import (
	"encoding/json"
	"fmt"
	"time"
)

// welcomeTime bounds how long the agent may take to welcome a sidecar.
const welcomeTime = 10 * time.Second

// greet connects to the agent and introduces the sidecar.
func greet(opts Options) (*Conn, error) {
	c, err := Dial(opts.Socket)
	if err != nil {
		return nil, err
	}
	if err := hello(c, opts); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// hello introduces the sidecar and waits for the agent's welcome.
func hello(c *Conn, opts Options) error {
	b, err := json.Marshal(opts)
	if err != nil {
		return err
	}
	if err := c.Unix().SetReadDeadline(time.Now().Add(welcomeTime)); err != nil {
		return err
	}
	if err := c.Send(&Message{Kind: KindHello, Text: string(b)}, -1); err != nil {
		return fmt.Errorf("hello to the agent: %w", err)
	}
	var m Message
	f, err := c.Receive(&m)
	if err != nil {
		return fmt.Errorf("wait for the agent's welcome: %w", err)
	}
	f.Drop()
	if m.Kind != KindWelcome {
		return fmt.Errorf("%w: kind %d instead of a welcome", errPacket, m.Kind)
	}
	if err := m.Err(); err != nil {
		return &RefusedError{Request: opts.Request, Reason: err.Error()}
	}
	return c.Unix().SetReadDeadline(time.Time{})
}

// RefusedError means that the agent refuses the request.
type RefusedError struct{ Request, Reason string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the agent refuses request %s: %s", e.Request, e.Reason)
}

// ParseHello returns the options that a Hello carries.
func ParseHello(m *Message) (Options, error) {
	if m.Kind != KindHello {
		return Options{}, fmt.Errorf("%w: kind %d instead of a hello", errPacket, m.Kind)
	}
	return parseOptions([]byte(m.Text))
}

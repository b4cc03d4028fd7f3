package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/gorilla/websocket"

	"diapause.dev/test/workload/answers"
	"diapause.dev/test/workload/internal/memory"
)

// rest fills memory and answers. Between requests it does nothing, so that it can be idle.
func rest(ctx context.Context, o options) error {
	m, err := memory.New(o.mib<<20, o.content)
	if err != nil {
		return err
	}
	s := newServer()
	s.rests = true
	s.handle("GET /verify", func(*http.Request) (any, error) { return m.Verify(), nil })
	c := counter{boot: s.life.State().Boot, memory: m}
	s.handle("POST /count", c.count)
	s.mux.HandleFunc("GET /socket", echo)
	return errors.Join(s.run(ctx, o.listen), m.Close())
}

// counter counts requests. Each of them also writes a page, so that the memory changes with the number.
type counter struct {
	boot   string
	memory *memory.Memory
	n      atomic.Int64
}

func (c *counter) count(*http.Request) (any, error) {
	n := c.n.Add(1)
	c.memory.Write(int(n % int64(c.memory.Pages())))
	return answers.Count{Boot: c.boot, Count: n}, nil
}

// maxMessage bounds a message of a WebSocket, in bytes.
const maxMessage = 64 << 10

// echo answers each message of a WebSocket with the same one, and each ping with a pong, until the other end is gone.
func echo(w http.ResponseWriter, r *http.Request) {
	var u websocket.Upgrader
	conn, err := u.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer conn.Close()
	conn.SetReadLimit(maxMessage)
	for {
		kind, data, err := conn.ReadMessage()
		if err == nil {
			err = conn.WriteMessage(kind, data)
		}
		if err != nil {
			return
		}
	}
}

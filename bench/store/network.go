package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/time/rate"

	"diapause.dev/storage/limit"
)

const (
	// networkPiece is how many bytes pass at a time.
	networkPiece = 64 << 10
	// networkBehind is how far the network may fall behind and catch up, in bytes, when the processors are busy.
	networkBehind = 4 * networkPiece
	// networkQueue bounds the pieces on their way. It holds what passes within a round trip, and more.
	networkQueue = 64
)

// network lies between this process and a server. Each byte arrives half of the latency later, and each direction has
// its rate, all connections together. It is below the protocol, so that each request of a client pays for it.
type network struct {
	net.Listener
	half     time.Duration
	up, down *rate.Limiter
}

// newNetwork listens on an address of this machine, for serve.
func newNetwork(o limit.Options) (*network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &network{
		Listener: l, half: o.Latency / 2,
		up:   rate.NewLimiter(rate.Limit(o.Up), networkBehind),
		down: rate.NewLimiter(rate.Limit(o.Down), networkBehind),
	}, nil
}

// serve carries connections to the server at an address, until the network is closed.
func (n *network) serve(server string) {
	for {
		client, err := n.Accept()
		if err != nil {
			return
		}
		go n.connect(client, server)
	}
}

// connect carries one connection, whose handshake takes a round trip.
func (n *network) connect(client net.Conn, server string) {
	defer client.Close()
	time.Sleep(2 * n.half)
	s, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer s.Close()
	done := make(chan error, 2)
	go func() { done <- n.carry(client, s, n.up) }()
	go func() { done <- n.carry(s, client, n.down) }()
	if err := <-done; err == nil {
		<-done
	}
}

// part is a piece on its way.
type part struct {
	data []byte
	due  time.Time
}

// carry passes on one direction of a connection to its end.
func (n *network) carry(from, to net.Conn, pace *rate.Limiter) error {
	parts := make(chan part, networkQueue)
	sent := make(chan error, 1)
	go func() { sent <- deliver(to, parts) }()
	err := n.collect(from, pace, parts)
	close(parts)
	return errors.Join(err, <-sent)
}

// collect reads pieces as fast as the network takes them.
func (n *network) collect(from io.Reader, pace *rate.Limiter, parts chan<- part) error {
	for {
		data := make([]byte, networkPiece)
		got, err := from.Read(data)
		if got > 0 {
			if err := pace.WaitN(context.Background(), got); err != nil {
				return err
			}
			parts <- part{data[:got], time.Now().Add(n.half)}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deliver writes each piece when it is due, and then ends the direction. After an error it takes the rest and drops it.
func deliver(to net.Conn, parts <-chan part) (err error) {
	for p := range parts {
		if err != nil {
			continue
		}
		time.Sleep(time.Until(p.due))
		_, err = to.Write(p.data)
	}
	if t, ok := to.(*net.TCPConn); ok && err == nil {
		err = t.CloseWrite()
	}
	return err
}

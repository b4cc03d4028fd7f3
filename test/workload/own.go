package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"diapause.dev/test/workload/answers"
)

// own are sockets that are bound to the pod's own address, as memcached -l and statsd have them.
type own struct {
	mu     sync.Mutex
	client net.Conn // of UDP
}

// open has TCP and UDP answer at the pod's own address, and connects a client of UDP to somebody outside.
func (o *own) open(r *http.Request) (any, error) {
	addr, err := ownAddress()
	if err != nil {
		return nil, err
	}
	client, err := net.Dial("udp4", r.FormValue("to"))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", netip.AddrPortFrom(addr, answers.OwnTCP).String())
	if err != nil {
		return nil, err
	}
	u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, answers.OwnUDP)))
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.client = client
	go greetAll(l)
	go echoAll(u)
	return map[string]string{"address": addr.String()}, nil
}

// say sends a text by the client.
func (o *own) say(r *http.Request) (any, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.client == nil {
		return nil, errors.New("no client: POST /own first")
	}
	_, err := o.client.Write([]byte(r.FormValue("text")))
	return map[string]string{"from": o.client.LocalAddr().String()}, err
}

func ownAddress() (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("none of %v is an address of the pod", all)
}

// greetAll says the address at which each connection has come.
func greetAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, c.LocalAddr()) // who hangs up does not want to know
		c.Close()
	}
}

// echoAll sends each packet back.
func echoAll(u *net.UDPConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := u.ReadFrom(buf)
		if err != nil {
			return
		}
		u.WriteTo(buf[:n], from) // nobody need listen
	}
}

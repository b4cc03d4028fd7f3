package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// ownTime bounds how long a packet may take.
const ownTime = 10 * time.Second

func ownPlace(p *bed.Pod, port int) string { return net.JoinHostPort(p.IP, strconv.Itoa(port)) }

// bindOwn has a workload answer at its pod's own address, and connects a client of it to the socket that it returns.
func (n *node) bindOwn(p *bed.Pod) *net.UDPConn {
	n.Helper()
	c, err := net.Dial("tcp4", p.IP+":8080")
	if err != nil {
		n.Fatal(err)
	}
	us := c.LocalAddr().(*net.TCPAddr).IP // where the pod finds us
	c.Close()
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: us})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { u.Close() })
	n.post(p, "/own?to="+url.QueryEscape(u.LocalAddr().String()))
	return u
}

// answersOwn fails unless a workload answers at its pod's address as it is now, and its client sends from there to u.
func (n *node) answersOwn(p *bed.Pod, u *net.UDPConn) {
	n.Helper()
	n.eventually(p.Name+" answers at its own address", func() error {
		got, err := greeted(p)
		if want := ownPlace(p, answers.OwnTCP); err == nil && got != want {
			err = fmt.Errorf("it says it is at %s, not %s", got, want)
		}
		return err
	})
	if got, err := echoed(p); err != nil || got != p.Name {
		n.Errorf("%s: answer %q by UDP: %v", p.Name, got, err)
	}
	n.post(p, "/say?text="+p.Name)
	buf := make([]byte, 1500)
	for { // what others have said before may be there, too
		if err := u.SetReadDeadline(time.Now().Add(ownTime)); err != nil {
			n.Fatal(err)
		}
		l, from, err := u.ReadFromUDP(buf)
		if err != nil {
			n.Fatalf("%s: its client sends nothing: %v", p.Name, err)
		}
		if string(buf[:l]) == p.Name {
			if from.IP.String() != p.IP {
				n.Errorf("%s: its client sends from %v", p.Name, from)
			}
			return
		}
	}
}

// greeted returns what a workload says to who connects to its pod's address.
func greeted(p *bed.Pod) (string, error) {
	c, err := net.DialTimeout("tcp4", ownPlace(p, answers.OwnTCP), ownTime)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	return string(b), err
}

// echoed returns what a workload sends back of a packet to its pod's address.
func echoed(p *bed.Pod) (string, error) {
	c, err := net.Dial("udp4", ownPlace(p, answers.OwnUDP))
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Write([]byte(p.Name))
	err = errors.Join(err, c.SetReadDeadline(time.Now().Add(ownTime)))
	if err != nil {
		return "", err
	}
	buf := make([]byte, 1500)
	l, err := c.Read(buf)
	return string(buf[:l]), err
}

// TestOwnAddress: a program that is bound to its pod's address answers at the new one after a restore, and its
// client of UDP sends from there. So it is after a restore of that restore, and a sleep changes nothing. With
// gVisor's build nobody answers at the new address.
func TestOwnAddress(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=8")
	n.serving(p)
	u := n.bindOwn(p)
	n.answersOwn(p, u)
	n.checkpoint("origin", "--name=one")
	n.answersOwn(p, u)
	branch := n.restore("one", "--name=branch")[0]
	n.serving(branch)
	if !repairedBuild(t) {
		if _, err := greeted(branch); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("somebody answers at the new address: %v", err)
		}
		return
	}
	n.answersOwn(branch, u)
	n.checkpoint(branch.ID, "--name=two")
	n.answersOwn(n.restore("two", "--name=second")[0], u)
	n.asleep(p)
	n.answersOwn(p, u)
}

package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// TestSleepPackets wakes a pod that has addresses of IPv4 and IPv6 by all kinds of packets that wake one, to each of
// them. What expects an answer gets it, and connections stay open over every sleep.
func TestSleepPackets(t *testing.T) {
	n := startOn(t, bed.Options{DualStack: true})
	p := n.sleeper("dual", "--mib", "8")
	if p.IPv6 == "" {
		t.Fatal("the pod has no address of IPv6")
	}
	addresses := []string{p.IP, p.IPv6}
	var kept []*http.Client
	var before string
	for _, address := range addresses {
		c := bed.SilentClient(30 * time.Second)
		kept, before = append(kept, c), n.askAt(c, address)
	}
	for i, address := range addresses {
		for _, packet := range []struct {
			name string
			send func(address string) error
		}{
			{"a new connection", func(address string) error {
				return n.sameBoot(bed.SilentClient(30*time.Second), address, before)
			}},
			{"a kept connection", func(address string) error { return n.sameBoot(kept[i], address, before) }},
			{"UDP", sendDatagram},
			{"an echo request", echo},
		} {
			n.asleep(p)
			if err := packet.send(address); err != nil {
				t.Errorf("%s to %s: %v", packet.name, address, err)
			}
			n.eventually(fmt.Sprintf("awake by %s to %s", packet.name, address), func() error {
				return n.topsAsleep(p, false)
			})
		}
	}
	n.verify(p)
}

// sameBoot asks a pod for its identity, which must be want.
func (n *node) sameBoot(c *http.Client, address, want string) error {
	if got := n.askAt(c, address); got != want {
		return fmt.Errorf("boot %q, was %q", got, want)
	}
	return nil
}

// sendDatagram sends a datagram to a port at which nobody listens.
func sendDatagram(address string) error {
	c, err := net.Dial("udp", net.JoinHostPort(address, "9"))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("wake"))
	return err
}

// echo sends one echo request, and waits for the answer.
func echo(address string) error {
	network, kind, reply, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if net.ParseIP(address).To4() == nil {
		network, kind, reply, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := conn.(*net.IPConn)
	request := icmp.Message{Type: kind, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte("wake")}}
	b, err := request.Marshal(nil) // the kernel sets the checksum of ICMPv6
	if err != nil {
		return err
	}
	if err := errors.Join(c.SetDeadline(time.Now().Add(30*time.Second)), write(c, b)); err != nil {
		return err
	}
	for buf := make([]byte, 1500); ; {
		size, _, err := c.ReadFromIP(buf) // without the header of IPv4
		if err != nil {
			return err
		}
		if m, err := icmp.ParseMessage(protocol, buf[:size]); err == nil && m.Type == reply {
			return nil
		}
	}
}

func write(c net.Conn, p []byte) error {
	_, err := c.Write(p)
	return err
}

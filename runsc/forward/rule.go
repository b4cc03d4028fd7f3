package forward

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// table is the nftables table in the namespace.
var table = &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "diapause"}

// loopback is the index of the loopback device of every network namespace.
const loopback = 1

// listen makes a listener in the namespace that can take connections to any address and port.
func (n namespace) listen(ctx context.Context) (l *net.TCPListener, err error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		refused := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		})
		if refused != nil {
			return refused
		}
		return err
	}}
	err = n.Do(func() error {
		any, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
		if err == nil {
			l = any.(*net.TCPListener)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in network namespace %s: %w", n.Name(), err)
	}
	return l, nil
}

// divert hands TCP connections to loopback addresses in the namespace to a listener there.
//
// Clients try localhost as an IPv4 address first, and the forwarder answers all of these. So IPv6 needs no rule.
func (n namespace) divert(to *net.TCPAddr) error {
	err := n.Do(func() error {
		c := &nftables.Conn{}
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{
			Name: "loopback", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(loopback)},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Immediate{Register: 1, Data: to.IP.To4()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(uint16(to.Port))},
			&expr.TProxy{Family: unix.NFPROTO_IPV4, TableFamily: unix.NFPROTO_IPV4, RegAddr: 1, RegPort: 2},
		}})
		return c.Flush()
	})
	if err != nil {
		return fmt.Errorf("rules in network namespace %s: %w", n.Name(), err)
	}
	return nil
}

// restore undoes divert.
func (n namespace) restore() error {
	err := n.Do(func() error {
		c := &nftables.Conn{}
		c.DelTable(table)
		return c.Flush()
	})
	if err != nil {
		return fmt.Errorf("remove rules from network namespace %s: %w", n.Name(), err)
	}
	return nil
}

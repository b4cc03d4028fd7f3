package sleep

import (
	"fmt"

	"diapause.dev/runsc/netns"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// silenceTables are the nftables tables that keep the kernel of a sleeping pod's namespace silent.
var silenceTables = []*nftables.Table{
	{Family: nftables.TableFamilyIPv4, Name: "diapause-sleep"},
	{Family: nftables.TableFamilyIPv6, Name: "diapause-sleep"},
}

// loopback is the index of the loopback device of every network namespace.
const loopback = 1

// Silence makes the kernel in the pod's namespace drop all that it gets from, or sends to, other machines. Between the
// time when the pod's addresses are put back and the time when runsc takes them, the kernel has them, and would reset
// connections that it does not know. Packet sockets, the sandbox's too, see the packets all the same.
func (n *Network) Silence() error {
	return n.rules("silence", func(c *nftables.Conn) {
		for _, t := range silenceTables {
			c.AddTable(t)
			c.FlushTable(t)
			drop(c, t, "in", nftables.ChainHookPrerouting, expr.MetaKeyIIF)
			drop(c, t, "out", nftables.ChainHookOutput, expr.MetaKeyOIF)
		}
	})
}

// Unsilence undoes Silence.
func (n *Network) Unsilence() error {
	return n.rules("end the silence of", func(c *nftables.Conn) {
		for _, t := range silenceTables {
			c.DelTable(t)
		}
	})
}

func (n *Network) rules(what string, f func(*nftables.Conn)) error {
	ns, err := netns.Open(n.path)
	if err != nil {
		return err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		c := &nftables.Conn{}
		f(c)
		return c.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s network namespace %s: %w", what, n.path, err)
	}
	return nil
}

// drop adds a chain that drops everything at a hook, except what the loopback device has.
func drop(c *nftables.Conn, t *nftables.Table, name string, hook *nftables.ChainHook, device expr.MetaKey) {
	chain := c.AddChain(&nftables.Chain{
		Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRaw,
	})
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: device, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(loopback)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
}

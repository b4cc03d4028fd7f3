package forward

import (
	"fmt"
	"net"
	"net/netip"

	"diapause.dev/runsc/netns"
)

// ErrShared is the error for a network namespace that is also this process's.
var ErrShared = netns.ErrShared

// namespace is the network namespace that is forwarded from.
type namespace struct{ netns.Namespace }

func openNamespace(path string) (namespace, error) {
	n, err := netns.Open(path)
	return namespace{n}, err
}

// addresses returns the addresses in the namespace at which other machines reach it.
func (n namespace) addresses() (found []netip.Addr, err error) {
	err = n.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				found = append(found, p.Addr())
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("addresses of network namespace %s: %w", n.Name(), err)
	}
	return found, nil
}

// Addresses returns the addresses of the pod with the network namespace at path. Call it before the sandbox
// starts, because the sandbox takes the addresses out of the namespace. For this process's own namespace the
// error is [ErrShared].
func Addresses(path string) ([]netip.Addr, error) {
	n, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return n.addresses()
}

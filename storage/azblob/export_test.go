package azblob

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"diapause.dev/storage/bucket"
)

// OpenFrom is Open with this process's own credentials, for a machine on which the hosts of Azure's are at an address.
func OpenFrom(ctx context.Context, p Place, t *tls.Config, address string) (*Backend, error) {
	base := bucket.NewTransport(t)
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		if !strings.HasPrefix(to, "127.") {
			to = address
		}
		return dial(ctx, network, to)
	}
	return open(ctx, p, nil, &transport{base})
}

package programs

import (
	"context"
	"errors"
	"net"
	"time"
)

// connectTime is how long a connection may take before another is tried, for twice as long: what was sent to a pod that
// was not there yet is sent again by the kernel only after a second.
const connectTime = 200 * time.Millisecond

// connect makes a connection to a program.
func connect(ctx context.Context, ip, port string) (net.Conn, error) {
	for limit := connectTime; ; limit *= 2 {
		conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
		var failed net.Error
		if err == nil || ctx.Err() != nil || !errors.As(err, &failed) || !failed.Timeout() {
			return conn, err
		}
	}
}

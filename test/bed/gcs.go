package bed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// GCS is a fake-gcs-server in the bed's own namespaces. Killed and started
// again, it has what it had.
type GCS struct {
	*Daemon
	// Address is where it is, host and port, for the program, nodes and pods: the
	// value for STORAGE_EMULATOR_HOST.
	Address string
}

// StartGCS starts a fake-gcs-server with these buckets, which are empty, and
// returns when it answers. It goes on until it is killed, or the program ends.
func StartGCS(ctx context.Context, buckets ...string) (*GCS, error) {
	if here == nil {
		return nil, errOutside
	}
	root, err := os.MkdirTemp(tmpDir, "gcs-")
	if err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	for _, b := range buckets {
		if err := os.Mkdir(filepath.Join(root, b), 0o755); err != nil {
			return nil, fmt.Errorf("bed: %w", err)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(bedIP, port)
	g := &GCS{Address: address, Daemon: &Daemon{
		space: base, name: "fake-gcs-server", up: answers(http.DefaultClient, "http://"+address+"/storage/v1/b"),
		args: []string{
			"-scheme=http", "-host=" + bedIP, "-port=" + port, "-public-host=" + address, "-external-url=http://" + address,
			"-filesystem-root=" + root, "-log-level=error",
		},
	}}
	if err := g.Start(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// freePort returns a port of the bed's address that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", bedIP+":0")
	if err != nil {
		return "", fmt.Errorf("bed: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

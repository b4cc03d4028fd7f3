package bed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"diapause.dev/test/tools"
)

// The root keys of an [S3].
const (
	S3AccessKey = "access"
	S3SecretKey = "secret"
)

// S3 is a versitygw in the bed's own namespaces. Killed and started again, it has what it had.
type S3 struct {
	*Daemon
	// Endpoint is where it is, "http://host:port", for the program, nodes and pods.
	Endpoint string
}

// StartS3 starts a versitygw with these buckets, which are empty, and returns when it answers. It goes on until it is
// killed, or the program ends. The program needs the extra [tools.S3].
func StartS3(ctx context.Context, buckets ...string) (*S3, error) {
	if here == nil {
		return nil, errOutside
	}
	root, err := os.MkdirTemp(tmpDir, "s3-")
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
	const health = "/health"
	address := net.JoinHostPort(bedIP, port)
	s := &S3{Endpoint: "http://" + address}
	s.Daemon = &Daemon{
		space: base, name: tools.VersityGW, up: answers(http.DefaultClient, s.Endpoint+health),
		args: []string{
			"--access=" + S3AccessKey, "--secret=" + S3SecretKey, "--port=" + address, "--health=" + health, "--quiet",
			"--keep-alive", "posix", root,
		},
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

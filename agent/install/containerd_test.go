package install

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/cri"
)

// versioned is a containerd that says nothing but its version.
type versioned struct {
	criapi.UnimplementedRuntimeServiceServer
	version string
}

func (v versioned) Version(context.Context, *criapi.VersionRequest) (*criapi.VersionResponse, error) {
	return &criapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: v.version}, nil
}

// serveVersion serves as the host's containerd until the test ends.
func serveVersion(t *testing.T, o Options, version string) {
	t.Helper()
	path := o.host(o.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	criapi.RegisterRuntimeServiceServer(s, versioned{version: version})
	go s.Serve(l)
	t.Cleanup(s.Stop)
}

// wantNothing fails the test if anything was installed.
func wantNothing(t *testing.T, o Options) {
	t.Helper()
	for _, path := range []string{o.Dir, o.DropIn} {
		if _, err := os.Lstat(o.host(path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was written: %v", path, err)
		}
	}
}

// TestContainerd1Refused: under containerd 1 nothing is installed, and the error says what to do.
func TestContainerd1Refused(t *testing.T) {
	o := options(t)
	o.Restart = func(context.Context) error {
		t.Error("containerd is restarted")
		return nil
	}
	serveVersion(t, o, "v1.7.35")
	write(t, o.host(o.Config), "version = 2\nimports = ['conf.d/*.toml']\n", 0o644)
	for _, name := range programs {
		write(t, o.source(name), name, 0o755)
	}
	err := Install(t.Context(), o)
	if !errors.Is(err, cri.ErrUnsupported) || !strings.Contains(err.Error(), "containerd v1.7.35") ||
		!strings.Contains(err.Error(), "upgrade containerd to 2.1.9") {
		t.Errorf("installed under containerd 1: %v", err)
	}
	wantNothing(t, o)
}

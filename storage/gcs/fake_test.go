package gcs_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"diapause.dev/test/tools"
)

// TestMain runs the tests beside a real fake-gcs-server. The client library finds it by STORAGE_EMULATOR_HOST.
func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	binary, err := serverBinary()
	if err != nil {
		return 1, err
	}
	address, err := freeAddress()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command(binary, "-scheme", "http", "-host", "127.0.0.1", "-port", fmt.Sprint(address.Port),
		"-backend", "memory", "-log-level", "error", "-public-host", address.String(), "-external-url", "http://"+
			address.String())
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	}()
	if err := waitFor("http://" + address.String() + "/storage/v1/b"); err != nil {
		return 1, err
	}
	if err := os.Setenv("STORAGE_EMULATOR_HOST", address.String()); err != nil {
		return 1, err
	}
	return run(), nil
}

// serverBinary returns the server that DIAPAUSE_FAKE_GCS names, or builds it.
func serverBinary() (string, error) {
	if path := os.Getenv("DIAPAUSE_FAKE_GCS"); path != "" {
		return path, nil
	}
	return tools.FakeGCS(context.Background())
}

func freeAddress() (*net.TCPAddr, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr), nil
}

// waitFor waits until the server answers.
func waitFor(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("fake-gcs-server does not answer at %s", url)
		}
	}
}

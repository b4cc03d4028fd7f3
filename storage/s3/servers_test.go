package s3_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"diapause.dev/test/tools"
)

// Of the servers that TestMain starts.
var (
	honest  string // "http://host:port" of versitygw, which keeps its word
	buckets string // the directory whose directories are its buckets
	lying   string // of gofakes3, which overwrites what it shall only create. It has any bucket
)

const (
	accessKey = "access"
	secretKey = "secret"
)

// TestMain runs the tests beside real servers.
func TestMain(m *testing.M) {
	code, err := withServers(m.Run)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func withServers(run func() int) (code int, err error) {
	programs, err := tools.S3Servers(context.Background())
	if err != nil {
		return 1, err
	}
	if buckets, err = os.MkdirTemp("", "s3-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(buckets)
	var stop func()
	honest, stop, err = start(func(address string) *exec.Cmd {
		return exec.Command(filepath.Join(programs, tools.VersityGW), "--access", accessKey, "--secret", secretKey,
			"--port", address, "--quiet", "--keep-alive", "posix", buckets)
	})
	if err != nil {
		return 1, err
	}
	defer stop()
	lying, stop, err = start(func(address string) *exec.Cmd {
		return exec.Command(filepath.Join(programs, tools.GoFakeS3), "-host", address, "-backend", "memory", "-autobucket",
			"-quiet")
	})
	if err != nil {
		return 1, err
	}
	defer stop()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return 1, err
		}
	}
	return run(), nil
}

// start starts a server and returns once it answers.
func start(command func(address string) *exec.Cmd) (url string, stop func(), err error) {
	address, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	cmd := command(address)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	}
	url = "http://" + address
	if err := waitFor(url); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
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
			return fmt.Errorf("no server answers at %s", url)
		}
	}
}

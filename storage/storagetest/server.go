package storagetest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// StartServer starts a store's server at a free address of this machine, and returns the address, "host:port", once
// something answers at that path there. Stop kills the server.
func StartServer(path string, command func(address string) *exec.Cmd) (address string, stop func(), err error) {
	if address, err = freeAddress(); err != nil {
		return "", nil, err
	}
	cmd := command(address)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	}
	if err := waitFor("http://" + address + path); err != nil {
		stop()
		return "", nil, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return address, stop, nil
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // packages share a server: no test is over
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

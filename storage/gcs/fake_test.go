package gcs_test

import (
	"context"
	"log"
	"os"
	"os/exec"
	"strings"
	"testing"

	"diapause.dev/storage/storagetest"
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
	address, stop, err := storagetest.StartServer("/storage/v1/b", func(address string) *exec.Cmd {
		_, port, _ := strings.Cut(address, ":")
		return exec.Command(binary, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory",
			"-log-level", "error", "-public-host", address, "-external-url", "http://"+address)
	})
	if err != nil {
		return 1, err
	}
	defer stop()
	if err := os.Setenv("STORAGE_EMULATOR_HOST", address); err != nil {
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

package s3_test

import (
	"context"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"diapause.dev/storage/storagetest"
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
	if honest, stop, err = storagetest.StartServer("", func(address string) *exec.Cmd {
		return exec.Command(filepath.Join(programs, tools.VersityGW), "--access", accessKey, "--secret", secretKey,
			"--port", address, "--quiet", "--keep-alive", "posix", buckets)
	}); err != nil {
		return 1, err
	}
	defer stop()
	if lying, stop, err = storagetest.StartServer("", func(address string) *exec.Cmd {
		return exec.Command(filepath.Join(programs, tools.GoFakeS3), "-host", address, "-backend", "memory", "-autobucket",
			"-quiet")
	}); err != nil {
		return 1, err
	}
	defer stop()
	honest, lying = "http://"+honest, "http://"+lying
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return 1, err
		}
	}
	return run(), nil
}

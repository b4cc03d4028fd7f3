package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	access "diapause.dev/agent/place"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
	"diapause.dev/test/tools"
)

// server is a program that speaks the protocol of a kind of store.
type server struct {
	name string
	// start starts it with the directory, and returns where it is. Clients know it by the address public.
	start func(ctx context.Context, dir, public string) (address string, stop func(), err error)
	// location is a store's on it, as agents have it, behind that address. The prefix is the last part of its path.
	location func(public, prefix string) string
}

// bucketName is the bucket, or container, on each server.
const bucketName = "bench"

// servers are the same programs as in the tests of the backends.
func servers() []server {
	return []server{
		{"gcs", startGCS, func(_, prefix string) string { return "gs://" + bucketName + "/" + prefix }},
		{"s3", startS3, func(public, prefix string) string {
			return "s3://" + bucketName + "/" + prefix + "?region=us-east-1&pathStyle=true&endpoint=http://" + public
		}},
		{"azblob", startAzure, func(public, prefix string) string {
			return "azblob://" + azureAccount + "/" + bucketName + "/" + prefix +
				"?endpoint=http://" + public + "/" + azureAccount
		}},
	}
}

// transfer is a snapshot's way to a server and back.
type transfer struct {
	replicate, restore best
	requests, read     int64 // of the store, for one snapshot there and back
}

// servers compares the kinds of stores over the same network. The bound of each is the first, Cloud Storage.
func (b *bench) servers(ctx context.Context) error {
	var first transfer
	for i, s := range servers() {
		t, err := b.transfer(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if i == 0 {
			first = t
		}
		name := "servers/" + s.name
		b.bounded(name, "replicate_"+seconds, t.replicate.took.Seconds(), second, first.replicate.took.Seconds())
		b.bounded(name, "restore_"+seconds, t.restore.took.Seconds(), second, first.restore.took.Seconds())
		b.add(name, requests, float64(t.requests), count)
		b.add(name, "read_bytes", float64(t.read), byteUnit)
	}
	return nil
}

// transfer takes the best of some rounds.
func (b *bench) transfer(ctx context.Context, s server) (t transfer, err error) {
	dir, err := os.MkdirTemp(b.scratch, s.name+"-")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	net, err := newNetwork(wire100rtt20)
	if err != nil {
		return t, err
	}
	defer net.Close()
	public := net.Addr().String()
	address, stop, err := s.start(ctx, dir, public)
	if err != nil {
		return t, err
	}
	defer stop()
	go net.serve(address)
	into := touched(len(b.base.raw))
	for n := range rounds {
		if err := b.thereAndBack(ctx, s.location(public, fmt.Sprint("round-", n)), into, &t); err != nil {
			return t, err
		}
	}
	return t, nil
}

// thereAndBack writes a snapshot to a fresh store, and reads it by a second client, as another node does.
func (b *bench) thereAndBack(ctx context.Context, location string, into []byte, t *transfer) error {
	p, err := openStore(ctx, location)
	if err != nil {
		return err
	}
	settle()
	_, s, err := p.write(ctx, b.base)
	if err := errors.Join(err, p.calls.Close()); err != nil {
		return err
	}
	if p, err = openStore(ctx, location); err != nil {
		return err
	}
	settle()
	r, err := p.restore(ctx, "one", into)
	t.replicate.add(s.took)
	t.restore.add(r.took)
	t.requests, t.read = s.requests+r.requests, r.read
	return errors.Join(err, p.calls.Close())
}

// openStore opens a store as an agent does.
func openStore(ctx context.Context, location string) (*place, error) {
	backend, err := access.Access{}.Open(ctx, location)
	if err != nil {
		return nil, err
	}
	return newStore(ctx, backend, "", storage.Options{})
}

func startGCS(ctx context.Context, dir, public string) (string, func(), error) {
	program, err := tools.FakeGCS(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, bucketName), 0o700),
		os.Setenv("STORAGE_EMULATOR_HOST", public)); err != nil {
		return "", nil, err
	}
	return storagetest.StartServer("/storage/v1/b", func(address string) *exec.Cmd {
		host, port, _ := strings.Cut(address, ":")
		return exec.Command(program, "-scheme=http", "-host="+host, "-port="+port, "-public-host="+public,
			"-external-url=http://"+public, "-filesystem-root="+dir, "-log-level=error")
	})
}

func startS3(ctx context.Context, dir, _ string) (string, func(), error) {
	const access, secret = "access", "secret"
	programs, err := tools.S3Servers(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, bucketName), 0o700), os.Setenv("AWS_ACCESS_KEY_ID", access),
		os.Setenv("AWS_SECRET_ACCESS_KEY", secret)); err != nil {
		return "", nil, err
	}
	return storagetest.StartServer("", func(address string) *exec.Cmd {
		return exec.Command(filepath.Join(programs, tools.VersityGW), "--access", access, "--secret", secret,
			"--port", address, "--quiet", "--keep-alive", "posix", dir)
	})
}

// The account that azurite has, with its key, which everybody knows.
const (
	azureAccount = "devstoreaccount1"
	azureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

func startAzure(ctx context.Context, dir, _ string) (address string, stop func(), err error) {
	program, err := tools.Azurite(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.Setenv("AZURE_STORAGE_ACCOUNT", azureAccount),
		os.Setenv("AZURE_STORAGE_KEY", azureKey)); err != nil {
		return "", nil, err
	}
	address, stop, err = storagetest.StartServer("", func(address string) *exec.Cmd {
		_, port, _ := strings.Cut(address, ":")
		cmd := exec.Command(program, "--blobPort", port, "--location", dir, "--skipApiVersionCheck", "--disableTelemetry",
			"--disableProductStyleUrl", "--silent")
		cmd.Dir = dir
		return cmd
	})
	if err != nil {
		return "", nil, err
	}
	if err := makeContainer(ctx, address); err != nil {
		stop()
		return "", nil, err
	}
	return address, stop, nil
}

// makeContainer makes the container, not over the network.
func makeContainer(ctx context.Context, address string) error {
	key, err := container.NewSharedKeyCredential(azureAccount, azureKey)
	if err != nil {
		return err
	}
	url := "http://" + address + "/" + azureAccount + "/" + bucketName
	c, err := container.NewClientWithSharedKeyCredential(url, key, nil)
	if err != nil {
		return err
	}
	_, err = c.Create(ctx, nil)
	return err
}

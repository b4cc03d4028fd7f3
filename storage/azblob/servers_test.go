package azblob_test

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

// server is the URL of azurite.
var server string

// account is the one that azurite has, with its key, which everybody knows.
const (
	account    = "devstoreaccount1"
	accountKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// TestMain runs the tests beside a real server.
func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	azurite, err := tools.Azurite(context.Background())
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "azurite-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	address, stop, err := storagetest.StartServer("", func(address string) *exec.Cmd {
		_, port, _ := strings.Cut(address, ":")
		cmd := exec.Command(azurite, "--blobPort", port, "--inMemoryPersistence", "--skipApiVersionCheck",
			"--disableTelemetry", "--disableProductStyleUrl", "--silent")
		cmd.Dir = dir
		return cmd
	})
	if err != nil {
		return 1, err
	}
	defer stop()
	server = "http://" + address
	for name, value := range map[string]string{
		"AZURE_STORAGE_ACCOUNT": account, "AZURE_STORAGE_KEY": accountKey, "AZURE_STORAGE_SAS_TOKEN": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			return 1, err
		}
	}
	return run(), nil
}

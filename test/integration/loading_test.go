package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

// TestKilledWhileLoading kills a sandbox that loads its memory from a slow store, and its sidecar first,
// which so tells nobody. While the sandbox loads, its snapshot is not to be removed; when it is gone, it
// is.
func TestKilledWhileLoading(t *testing.T) {
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	t.Setenv("STORAGE_EMULATOR_HOST", slowed(t, store.Address))
	flags := func() []string { return []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"} }
	n := start(t, flags()...)
	n.serving(n.workload("origin", "serve", "--mib=256"))
	n.checkpoint("--name=saved", "origin")
	n.restartAgent(flags()...) // which has nothing of it on the node
	p, err := n.bed.RunPod(n.ctx, fromSnapshot("branch", "default/saved", "serve", "--mib=256"))
	if err != nil {
		t.Fatal(err)
	}

	n.refused([]string{"default/saved", "being restored"}, "rm", "saved")
	sentry, sidecars := n.sentry(p), processes(t, "checkpointgofer")
	if len(n.restores()) != 1 || len(sidecars) != 1 {
		t.Fatalf("%d restores are under way, with %d sidecars", len(n.restores()), len(sidecars))
	}
	n.signal(sidecars[0], syscall.SIGKILL)
	n.signal(sentry, syscall.SIGKILL)
	n.eventually("the snapshot is removed", func() error {
		_, err := n.cli("rm", "saved")
		return err
	})
	if left := n.restores(); len(left) != 0 {
		t.Errorf("restores under way: %v", left)
	}
}

// slowed returns the address of a server that passes everything on to the one at another address, and
// its answers one after the other, some 6 MiB a second in all.
func slowed(t *testing.T, address string) string {
	t.Helper()
	to, turn := &url.URL{Scheme: "http", Host: address}, new(sync.Mutex)
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = &slowBody{r.Body, turn}
			return nil
		},
	})
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// slowBody is read in small parts, with a pause after each.
type slowBody struct {
	io.ReadCloser
	turn *sync.Mutex
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	time.Sleep(5 * time.Millisecond)
	return b.ReadCloser.Read(p[:min(len(p), 32<<10)])
}

// processes returns the processes that run a program of that name.
func processes(t *testing.T, name string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

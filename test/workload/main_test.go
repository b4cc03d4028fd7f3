package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

// TestMain lets the test binary be the workload.
func TestMain(m *testing.M) {
	if os.Getenv("WORKLOAD_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	tests := []struct {
		args string
		ok   bool
	}{
		{"serve --mib 1", true},
		{"order", true},
		{"rest --mib 1 --seed 7 --random 128", true},
		{"fidelity --dir /x --tmpfs /y", true},
		{"", false},
		{"fly", false},
		{"serve --mib 0", false},
		{"serve --mib 99999999", false},
		{"serve more", false},
		{"serve --speed 1", false},
	}
	for _, tt := range tests {
		if _, _, err := parse(strings.Fields(tt.args)); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.args, err)
		}
	}
}

// TestModes runs each mode as a process, asks it, and ends it with SIGTERM.
func TestModes(t *testing.T) {
	tests := []struct {
		mode, method, path, want string
	}{
		{"serve", "GET", "/verify", `"ok":true`},
		{"serve", "POST", "/dirty?mib_per_s=10", `"mib_per_s":10`},
		{"serve", "POST", "/dirty?mib_per_s=NaN", "want 0 to"},
		{"rest", "GET", "/later?seconds=0", `"boot"`},
		{"rest", "GET", "/later?seconds=-1", "want 0 to"},
		{"serve", "GET", "/touch?mib=1", `"pages":256`},
		{"serve", "GET", "/touch?mib=2&pieces=4", `"pages":512`},
		{"serve", "GET", "/touch?mib=3", "pages"},
		{"serve", "GET", "/touch?mib=-1", "want 0 to"},
		{"serve", "GET", "/touch?mib=1&pieces=0", "want 1 to"},
		{"serve", "POST", "/loop?on=true", `"on":true`},
		{"serve", "GET", "/loop?reset=1", `"passes"`},
		{"serve", "POST", "/loop?on=perhaps", "want true or false"},
		{"serve", "POST", "/work?kind=memory&threads=2", `"threads":2`},
		{"serve", "POST", "/work?kind=syscalls&threads=1", `"threads":1`},
		{"serve", "GET", "/work?reset=1", `"notes"`},
		{"serve", "POST", "/work?kind=play&threads=1", "want memory or syscalls"},
		{"serve", "POST", "/work?threads=many", "want 0 to"},
		{"rest", "GET", "/verify", `"ok":true`},
		{"rest", "POST", "/count", `"count":1`},
		{"rest", "POST", "/count", `"count":2`},
		{"rest", "GET", "/verify", `"ok":true`},
		{"order", "GET", "/verify", `"ok":true`},
		{"order", "POST", "/freeze?on=true", `"ok":true`},
		{"order", "POST", "/freeze?on=perhaps", "want true or false"},
		{"fidelity", "GET", "/report", `"check":"pipe"`},
	}
	for _, mode := range []string{"serve", "rest", "order", "fidelity"} {
		t.Run(mode, func(t *testing.T) {
			address, end := start(t, mode)
			for _, tt := range tests {
				if tt.mode != mode {
					continue
				}
				if got := ask(t, tt.method, "http://"+address+tt.path); !strings.Contains(got, tt.want) {
					t.Errorf("%s %s: %q, want %q", tt.method, tt.path, got, tt.want)
				}
			}
			var s answers.State
			if err := json.Unmarshal([]byte(ask(t, "GET", "http://"+address+"/state")), &s); err != nil || s.Boot == "" {
				t.Errorf("state %+v: %v", s, err)
			}
			if got := ask(t, "GET", "http://"+address+"/gap?reset=1"); !strings.Contains(got, `"max_gap_ms"`) {
				t.Errorf("gap: %q", got)
			}
			if code := end(); code != exitTerminated {
				t.Errorf("exit code %d, want %d", code, exitTerminated)
			}
		})
	}
}

// onTmpfs returns a directory on a tmpfs that no other run uses.
func onTmpfs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "diapause-workload-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start runs a mode and returns where it answers and how to end it.
func start(t *testing.T, mode string) (string, func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], mode, "--mib", "2", "--listen", "127.0.0.1:0", "--dir", t.TempDir(),
		"--tmpfs", onTmpfs(t))
	cmd.Env, cmd.Stderr = append(os.Environ(), "WORKLOAD_TEST=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	n, err := out.Read(line)
	_, address, ok := strings.Cut(strings.TrimSpace(string(line[:n])), "ready at ")
	if !ok {
		t.Fatalf("said %q: %v", line[:n], err)
	}
	return address, func() int {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Errorf("ended: %v", err)
			return 0
		}
		return exit.ExitCode()
	}
}

func ask(t *testing.T, method, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestErrorIsTheAskers(t *testing.T) {
	s := newServer()
	s.handle("GET /fail", func(*http.Request) (any, error) { return nil, errors.New("no") })
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest("GET", "/fail", nil))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "no") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

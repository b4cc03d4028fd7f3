package use

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Dir returns the directory of the files, beside the agent's socket. The agent makes it.
func Dir(socket string) string { return filepath.Join(filepath.Dir(socket), "used") }

// usePause is how often the file is touched. The agent looks once a second.
const usePause = 500 * time.Millisecond

// Sessions are the sessions of one pod: processes that exec has started, and ports that are forwarded. Nobody but its
// shim knows of them. While one is open, the shim touches a file again and again, and once more at its end. The agent
// takes a pod for used whose file has another time than before. Its methods may be called concurrently.
type Sessions struct {
	File string // of the sandbox's name, in [Dir]; empty: nobody wants to know

	mu   sync.Mutex
	open int
	last chan struct{} // closed when the last one has ended
}

// Begin notes that a session has begun. The function that it returns is to be called at the session's end.
func (s *Sessions) Begin() (end func()) {
	if s.File == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	if s.open == 1 {
		s.last = make(chan struct{})
		go keepUsed(s.File, s.last)
	}
	return sync.OnceFunc(s.end)
}

func (s *Sessions) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.open == 0 {
		close(s.last)
	}
}

// keepUsed touches a file until the last session has ended.
func keepUsed(file string, last <-chan struct{}) {
	for over := false; ; {
		err := touch(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // there has been no agent yet
			slog.Warn("the agent is not told that the pod is used", "error", err)
		}
		if over {
			return
		}
		select {
		case <-last:
			over = true
		case <-time.After(usePause):
		}
	}
}

// touch sets the modification time of a file, which it makes if need be.
func touch(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	now := time.Now()
	return errors.Join(f.Close(), os.Chtimes(file, now, now))
}

// Session returns when a session of a sandbox was last known to be open; zero: never.
func Session(dir, sandbox string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(dir, sandbox))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

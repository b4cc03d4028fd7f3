package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/log"
)

// Nobody but the shims knows who uses a pod through them: by processes that exec has started, and by ports that are
// forwarded. While there is such a session, they touch a file beside the agent's socket again and again, and once more
// at its end. The agent takes a pod for used whose file has another time than before (agent/idle).

// usedDir is the directory of these files, beside the agent's socket. The agent makes it.
const usedDir = "used"

// usePause is how often the file is touched. The agent looks once a second.
const usePause = 500 * time.Millisecond

// sessions are the sessions of one pod. Its methods may be called concurrently.
type sessions struct {
	file string // empty: nobody wants to know

	mu   sync.Mutex
	open int
	last chan struct{} // closed when the last one has ended
}

// usedFile returns the path of a sandbox's file.
func (a agent) usedFile(sandbox string) string {
	if sandbox == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(a.socket), usedDir, sandbox)
}

// begin notes that a session has begun. The function that it returns is to be called at the session's end.
func (s *sessions) begin() (end func()) {
	if s.file == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	if s.open == 1 {
		s.last = make(chan struct{})
		go keepUsed(s.file, s.last)
	}
	return sync.OnceFunc(s.end)
}

func (s *sessions) end() {
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
			log.L.WithError(err).Warn("the agent is not told that the pod is used")
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

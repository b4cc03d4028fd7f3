package use

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"diapause.dev/runsc/traffic"
)

// packets is what the name of a file with a number of packets ends with.
const packets = ".packets"

// countPause is how often packets are counted. The agent looks once a second.
const countPause = time.Second

// Counting counts the packets of one sandbox for the agent. Its methods may be called concurrently. The zero value
// counts nothing.
type Counting struct {
	mu   sync.Mutex
	stop chan struct{} // nil: it counts nothing
}

// Begin counts from now on which IP packets come for the network namespace of a process, less those that are to be
// ignored. It writes their number to a file beside that of the sandbox's sessions, first before it returns, until the
// process has ended or Begin is called again. A packet counts for a moment if it comes between two looks.
func (x *Counting) Begin(pid int, ignored []traffic.Ignored, sessions string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, err := begin(pid, ignored, sessions)
	if err != nil {
		return err
	}
	if x.stop != nil {
		close(x.stop)
	}
	x.stop = make(chan struct{})
	go n.keep(x.stop)
	return nil
}

// begin writes the first number.
func begin(pid int, ignored []traffic.Ignored, sessions string) (*count, error) {
	f, err := traffic.NewFilter(ignored)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%w: nothing", traffic.ErrIgnored)
	}
	c, err := f.Count(pid)
	if err != nil {
		return nil, err
	}
	n := &count{c: c, file: sessions + packets}
	if n.network, err = os.Open(fmt.Sprintf("/proc/%d/net", pid)); err == nil {
		err = n.write()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// count counts the packets of one sandbox.
type count struct {
	c       *traffic.Counter
	network *os.File // the kernel's directory about its network, and not about that of a later process with this number
	file    string
	written uint64
	some    bool // something was written
}

// keep counts until the process has ended.
func (n *count) keep(stop <-chan struct{}) {
	defer n.close()
	tick := time.NewTicker(countPause)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if err := n.write(); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				slog.Warn("packets are no longer counted: the pod may stay awake", "error", err)
			}
			return
		}
	}
}

// close closes its files. That of the network may be nil.
func (n *count) close() error {
	err := n.c.Close()
	if n.network != nil {
		err = errors.Join(err, n.network.Close())
	}
	return err
}

// write writes the number if it has changed. It never falls.
func (n *count) write() error {
	ignored, err := n.c.Read()
	if err != nil {
		return err
	}
	all, err := Received(fmt.Sprintf("/proc/self/fd/%d", n.network.Fd()))
	if err != nil {
		return err
	}
	now := max(n.written, all-min(all, ignored))
	if n.some && now == n.written {
		return nil
	}
	if err := replace(n.file, strconv.AppendUint(nil, now, 10)); err != nil {
		return err
	}
	n.written, n.some = now, true
	return nil
}

// replace gives a file a content, so that its reader sees all of it or the former one. It need not outlive a loss of
// power. One call for a file is made at a time.
func replace(file string, content []byte) error {
	part := file + ".part"
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// Packets returns what was counted for a sandbox.
func Packets(dir, sandbox string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, sandbox+packets))
	if err != nil {
		return 0, err
	}
	return counter("packets of sandbox "+sandbox, string(text))
}

// Clean removes the files about sandboxes that containerd no longer knows. Here are the ids of those that it knows.
func Clean(dir string, here map[string]bool) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		sandbox, _, _ := strings.Cut(f.Name(), ".")
		if !here[sandbox] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

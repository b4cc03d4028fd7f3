package main

import (
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is how long each thread sleeps at a time.
const threadTime = 100 * time.Millisecond

// startThreads starts threads that sleep, and wake up again and again.
func startThreads(n int) {
	for range n {
		go func() {
			runtime.LockOSThread()
			for {
				t := unix.NsecToTimespec(int64(threadTime))
				_ = unix.Nanosleep(&t, nil) // interrupted: it sleeps again
			}
		}()
	}
}

const (
	filesDir   = "/data/files"
	filesInDir = 1000
)

// files are small files, each of which says its number.
type files struct{ count int }

func makeFiles(count int) (*files, error) {
	f := &files{count}
	for i := range count {
		if i%filesInDir == 0 {
			if err := os.MkdirAll(filepath.Dir(f.path(i)), 0o755); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(f.path(i), fmt.Append(nil, i), 0o644); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *files) path(i int) string {
	return fmt.Sprintf("%s/%d/%d", filesDir, i/filesInDir, i)
}

// touch writes one of the files once more, with the same content.
func (f *files) touch(n int64) error {
	if f.count == 0 {
		return nil
	}
	i := int(n % int64(f.count))
	return os.WriteFile(f.path(i), fmt.Append(nil, i), 0o644)
}

// check reads all files into a digest.
func (f *files) check(sum hash.Hash) error {
	for i := range f.count {
		data, err := os.ReadFile(f.path(i))
		if err != nil {
			return err
		}
		sum.Write(data)
	}
	return nil
}

const (
	// waitTime is how long gVisor keeps a connection in TIME_WAIT.
	waitTime = time.Minute
	// waitBurst is how many connections are made at a time.
	waitBurst = 50
)

// keepWaiting keeps about n connections of the loopback device in TIME_WAIT: as many as there are to be at once, then
// new ones at the rate at which they expire.
func keepWaiting(n int) error {
	if n == 0 {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go accept(l)
	for range n {
		if err := connect(l.Addr().String()); err != nil {
			return err
		}
	}
	go func() {
		for range time.Tick(waitTime * waitBurst / time.Duration(n)) {
			for range waitBurst {
				if err := connect(l.Addr().String()); err != nil {
					fmt.Fprintln(os.Stderr, "inside:", err)
					os.Exit(1)
				}
			}
		}
	}()
	return nil
}

// accept reads each connection to its end, and ends it: the other side is in TIME_WAIT then.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "inside:", err)
			os.Exit(1)
		}
		io.Copy(io.Discard, c)
		c.Close()
	}
}

// connect makes a connection and ends it.
func connect(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	io.Copy(io.Discard, c)
	return c.Close()
}
